/* syscall: TensorPipe, by which torch.distributed.rpc moves tensors between processes of one machine, calls
 * process_vm_readv by its number, and gives up the connection when a tensor that is on its way out takes no bytes. That
 * call is pinned like its function (hook_recv.c); all others go on untouched.
 *
 * The hook is a jump: no frame of ours may lie below a call of vfork or clone. It runs in every process, in signal
 * handlers and between vfork and exec: before the look-up at load, which is before a program's first call, the next
 * function is looked up by a function in C.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "shim/hooks/next_symbol.h"

typedef long (*syscall_fn)(long, long, long, long, long, long, long);

static long first_call(long number, long a, long b, long c, long d, long e, long f);

/* What the jump goes to, and reads. */
__attribute__((used)) static syscall_fn swn_next_syscall = first_call;

__attribute__((constructor)) static void look_up(void)
{
    static struct swn_next_symbol cache;
    syscall_fn found = (syscall_fn)swn_next_symbol("syscall", &cache);
    if (found)
        __atomic_store_n(&swn_next_syscall, found, __ATOMIC_RELEASE);
}

static long first_call(long number, long a, long b, long c, long d, long e, long f)
{
    look_up();
    syscall_fn next = __atomic_load_n(&swn_next_syscall, __ATOMIC_ACQUIRE);
    if (next != first_call)
        return next(number, a, b, c, d, e, f);
    errno = ENOSYS;
    return -1;
}

__attribute__((used)) static long by_number(long number, long pid, const struct iovec *to, unsigned long n,
                                            const struct iovec *from, unsigned long froms, unsigned long flags)
{
    (void)number;
    return process_vm_readv((pid_t)pid, to, n, from, froms, flags);
}

#if defined(__x86_64__)
_Static_assert(SYS_process_vm_readv == 310, "as below");
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    endbr64\n"
        "    cmpq $310, %rdi\n"
        "    je by_number\n"
        "    jmpq *swn_next_syscall(%rip)\n"
        ".size syscall, . - syscall\n");
#elif defined(__aarch64__)
_Static_assert(SYS_process_vm_readv == 270, "as below");
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, %function\n"
        "syscall:\n"
        "    hint #34\n" /* bti c */
        "    cmp x0, #270\n"
        "    b.eq by_number\n"
        "    adrp x16, swn_next_syscall\n"
        "    ldr x16, [x16, #:lo12:swn_next_syscall]\n"
        "    br x16\n"
        ".size syscall, . - syscall\n");
#endif
