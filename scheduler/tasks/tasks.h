/* scheduler/tasks/tasks.h - what a policy over load and compute tasks sees, and what it decides.
 *
 * The problem of the Masa paper: networks are lists of layers. A load task reads the weights of a layer into memory, a
 * compute task runs a layer whose weights are there, after the layer before it. A pass is one network run for one
 * job, and a job is done when all of its passes are. The policies share W workers, one disk and one memory limit.
 *
 * A block is the weights of one layer in memory. It has a copy: either each pass loads its own, as in Masa, or all
 * passes of a network use one, and it may stay when they end. Blocks are clean: dropping one costs nothing but the
 * read when it is needed again.
 *
 * Policies are pure: state in, decision out, no clock and no I/O. Times are nanoseconds, sizes bytes. A decision is one
 * step; the caller applies it and asks again until nothing is left to do at this moment.
 */
#ifndef SWN_SCHEDULER_TASKS_TASKS_H
#define SWN_SCHEDULER_TASKS_TASKS_H

#include <stdint.h>

#define SWN_TASK_LAYERS 64  /* of a network at most */
#define SWN_TASK_WORKERS 8  /* at most, and so many readers at most */
#define SWN_TASK_INPUTS 256 /* of a pass at most */

struct swn_task_layer {
    uint64_t load_bytes;       /* weights: read by the load task, in memory from its start */
    uint64_t compute_ns;       /* for one input, on one worker */
    uint64_t activation_bytes; /* for one input while the layer computes, its input and output included */
    uint64_t output_bytes;     /* of these: stay until the next layer has computed; 0 after the last layer */
    uint8_t is_dense;          /* fully connected: DeepEye treats these apart */
};

struct swn_task_network {
    const struct swn_task_layer *layers;
    uint32_t layer_count;  /* 1 .. SWN_TASK_LAYERS */
    uint64_t peak_bytes;   /* what Masa's code reserves for a whole network; 0: its largest layer */
    uint64_t estimated_ns; /* by which Masa's code orders networks; 0: the sum of its compute times */
};

struct swn_task_pass {
    uint64_t id;       /* not 0; later passes have larger ones */
    uint64_t upstream; /* id of the pass whose result says whether this one is needed; 0: none */
    uint64_t arrived_ns;
    double weight;      /* of its job's response time */
    double probability; /* that upstream's result asks for it */
    uint32_t job, network, copy;
    uint32_t inputs;      /* 1 .. SWN_TASK_INPUTS: computing, activations and outputs count so often, loads once */
    uint32_t next_layer;  /* layer_count: done */
    uint8_t is_running;   /* next_layer computes now */
    uint8_t is_undecided; /* its upstream has not ended */
    uint8_t is_aborted;   /* not needed; it gives its memory back when its running task ends */
};

enum swn_task_block { SWN_BLOCK_ABSENT, SWN_BLOCK_LOADING, SWN_BLOCK_LOADED };

struct swn_task_copy {
    uint64_t used_ns; /* when a layer last computed with it */
    uint32_t network;
    uint8_t blocks[SWN_TASK_LAYERS]; /* enum swn_task_block */
    uint8_t is_taken;                /* 0: a free place in the array */
};

enum swn_task_kind { SWN_TASK_NONE, SWN_TASK_LOAD, SWN_TASK_COMPUTE, SWN_TASK_DROP };

struct swn_task_flight { /* a task that runs */
    double left_ns;      /* at full speed */
    enum swn_task_kind kind;
    uint32_t pass;        /* of a compute task: index */
    uint32_t copy, layer; /* of both */
};

/* What happens with a pass whose upstream has not ended (paper, 4.5). */
enum swn_task_cascade {
    SWN_CASCADE_IGNORE,  /* all passes run, whatever the results: Masa without context */
    SWN_CASCADE_WAIT,    /* nothing of it before: CA-wait */
    SWN_CASCADE_PREEMPT, /* it runs as soon as upstream has begun, and is aborted on a no: CA-preempt */
    SWN_CASCADE_PREFETCH /* its blocks may be loaded, nothing is computed */
};

struct swn_task_machine {
    double disk_bytes_per_ns; /* above 0 */
    uint64_t memory_bytes;
    uint32_t workers;        /* 1 .. SWN_TASK_WORKERS */
    uint32_t readers;        /* loads at once, beside the workers; 0: a load occupies a worker, as in Masa */
    uint8_t is_disk_divided; /* loads at once share the disk's speed; 0: each has all of it, as in the paper's model */
};

struct swn_task_state {
    struct swn_task_machine machine;
    uint64_t now_ns;
    const struct swn_task_network *networks;
    struct swn_task_pass *passes; /* unfinished ones in the order of ids */
    struct swn_task_copy *copies;
    uint32_t network_count, pass_count, copy_count;
    uint32_t flight_count;
    struct swn_task_flight flights[2 * SWN_TASK_WORKERS];
    uint64_t used_bytes;   /* blocks from the start of their load, activations, outputs (swn_task_used) */
    uint64_t spare_bytes;  /* of these: clean blocks that no pass of this state needs; only plans have any */
    double estimate;       /* memory needs are known with this factor; 1: exactly */
    uint8_t knows_weights; /* but those of weights exactly */
    enum swn_task_cascade cascade;
    uint8_t is_shared; /* passes of a network have one copy */
};

struct swn_task_decision {
    enum swn_task_kind kind;
    uint32_t pass;        /* index; not of a DROP */
    uint32_t copy, layer; /* of a LOAD and a DROP */
};

#endif
