/* skeleton/tape/exported_weights.c - the configuration of weights or constants: names, records and descriptions. */
#include "skeleton/tape/exported_reader.h"

#include <errno.h>
#include <string.h>

int swn_exported_read_weights(struct swn_exported_reader *r, json_t *root, struct swn_exported_weights *w)
{
    json_t *config = swn_exported_member(r, root, "config", JSON_OBJECT), *j;
    const char *name;

    if (!config)
        return -EINVAL;
    w->all = swn_exported_take(r, json_object_size(config), sizeof *w->all);
    if (!w->all)
        return -ENOMEM;
    json_object_foreach(config, name, j)
    {
        struct swn_exported_weight *one = &w->all[w->count++];
        json_t *meta;
        int rc;

        r->where = one->name = name;
        one->path = swn_exported_text_of(r, j, "path_name");
        if (!one->path)
            return -EINVAL;
        if (strchr(one->path, '/') || !strncmp(one->path, "custom_obj_", 11) || !strncmp(one->path, "opaque_obj_", 11))
            return swn_exported_refuse(r, "\"%.100s\" is no record of a tensor", one->path);
        if (!json_is_false(json_object_get(j, "use_pickle")))
            return swn_exported_refuse(r, "the tensor is pickled, and nothing is unpickled");
        meta = swn_exported_member(r, j, "tensor_meta", JSON_OBJECT);
        rc = meta ? swn_exported_read_meta(r, meta, 1, &one->meta) : -EINVAL;
        if (rc)
            return rc;
    }
    r->where = NULL;
    return 0;
}
