/* A libc10.so whose memory is not malloc's, as that of AArch64's wheels from PyTorch 2.10 on, which have mimalloc
 * inside. What is not its own it does not take back; and before each piece stands what malloc would take for nonsense.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void *c10_alloc(size_t n) __asm__("_ZN3c109alloc_cpuEm");
EXPORT void c10_free(void *p) __asm__("_ZN3c108free_cpuEPv");

static _Alignas(64) unsigned char room[1 << 20];
static size_t used;

void *c10_alloc(size_t n)
{
    size_t at = used + 64;
    if (at + n > sizeof room)
        return NULL;
    memset(room + used, 0xff, 64);
    used = (at + n + 63) / 64 * 64;
    return room + at;
}

void c10_free(void *p)
{
    if ((uintptr_t)p - (uintptr_t)room >= sizeof room)
        abort();
}
