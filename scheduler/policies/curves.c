/* scheduler/policies/curves.c - see curves.h. */
#include "scheduler/policies/curves.h"

double swn_curve_time(const struct swn_lane_group *group, double disk_bytes_per_ns, uint32_t n)
{
    double compute, reading = 0;

    if (group->batch_ns && group->batch_count) {
        uint32_t count = group->batch_count;
        if (n <= count) {
            compute = (double)group->batch_ns[n - 1];
        } else {
            double last = (double)group->batch_ns[count - 1];
            double step = count > 1 ? last - (double)group->batch_ns[count - 2] : last;
            compute = last + (step > 0 ? step : 0) * (n - count);
        }
    } else {
        compute = (double)group->compute_ns * n;
    }
    /* A speed near zero would make times infinite, and differences of them no numbers. */
    if (disk_bytes_per_ns > 1e-9)
        reading = (double)group->missing_bytes / disk_bytes_per_ns;
    return compute > reading ? compute : reading;
}

void swn_curve_table(const struct swn_lane_model *model, double disk_bytes_per_ns, uint32_t most, double *time)
{
    for (uint32_t g = 0; g < model->group_count; g++, time += most + 1) {
        time[0] = 0;
        for (uint32_t n = 1; n <= most; n++)
            time[n] = swn_curve_time(&model->groups[g], disk_bytes_per_ns, n);
    }
}

double swn_curve_alone(const struct swn_lane_model *model, double disk_bytes_per_ns, uint32_t group)
{
    double sum = 0;

    for (uint32_t g = group; g < model->group_count; g++)
        sum += swn_curve_time(&model->groups[g], disk_bytes_per_ns, 1);
    return sum;
}
