/* fuzz_safetensors - any bytes as a safetensors file. */
#include <stdlib.h>

#include "tests/fuzz/memory_io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file file = {.bytes = data, .size = size};
    struct swn_io io = memory_io(&file);
    struct swn_checkpoint *c;
    struct swn_identity id;
    char why[SWN_ERRMSG] = "";
    double begin = cpu_s();
    int refused = swn_checkpoint_open(&c, &io, "fuzz.safetensors", why);
    check_time(begin, size);
    if (refused)
        return why[0] ? 0 : (abort(), 0);
    check_checkpoint(c, size);
    /* the way that reads less must see the same */
    if (swn_checkpoint_identity(&io, c->files[0].fd, &id, why) || id.directory != c->files[0].identity.directory)
        abort();
    swn_checkpoint_close(c, &io);
    return 0;
}
