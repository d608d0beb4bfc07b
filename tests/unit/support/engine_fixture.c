/* tests/unit/support/engine_fixture.c - see engine_fixture.h. */
#define _GNU_SOURCE
#include "base/log.h"
#include "blocks/memory/publish.h"
#include "skeleton/runtime/runtime.h"
#include "shim/hooks/hooks.h"
#include "tests/unit/support/engine_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "skeleton/core/write_behind.h"
#include "skeleton/core/op_window.h"
#include "skeleton/tiling/slice.h"

#define LINE_WORDS 8

/* Weights change hands by page protection and by the kernel's copying, which the thread sanitizer cannot see: only
 * these accesses are hidden from it, the engine's own tables are not. */
#define OUT_OF_SIGHT __attribute__((no_sanitize("thread")))

#ifdef __SANITIZE_THREAD__
/* What is recalled while it is being written may go, and other memory may come there, before the write is done
 * (skeleton/core/write_behind.c): what is written then is never read. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:write_once\n";
}

/* A process that has threads goes on for so long at its end, so that races of the end with them may show. The default
 * is a second; each test is a process of its own, and its threads have little left to do. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=100";
}
#endif

static char directory[256];
static pid_t owner;

static void remove_directory(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (directory[0] && owner == getpid() && system(command))
        fprintf(stderr, "cannot remove %s\n", directory);
}

/* A hang is a failure; that others use the processors and the disk, too, is none. */
#define PATIENCE 3

int run_alone(void (*test)(void *arg), void *arg, unsigned seconds)
{
    fflush(NULL);
    const char *tmp = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/swn-engine-XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(directory))
        return 1;
    pid_t pid = fork();
    if (!pid) {
        for (int sig = 1; sig < 32; sig++)
            signal(sig, SIG_DFL); /* cmocka's handlers would run its teardown here, too */
        alarm(seconds * PATIENCE);
        test(arg);
        fflush(NULL);
        _exit(0);
    }
    int status = 0;
    owner = getpid();
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = 1 << 8;
    remove_directory();
    if (WIFSIGNALED(status))
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status)); /* scripts/test looks for it */
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const char *accept_attach(const struct swn_runtime_services *host)
{
    (void)host;
    return NULL;
}

static const char *accept_enable(void)
{
    return NULL;
}

int engine_watched = 1;

static int accept_watching(int on)
{
    engine_watched = on;
    return 0;
}

static void no_part(uintptr_t data, size_t bytes)
{
    (void)data, (void)bytes;
}

static const struct swn_torch_backend backend = {.abi = SWN_ATEN_ABI,
                                                 .attach = accept_attach,
                                                 .enable = accept_enable,
                                                 .watching = accept_watching,
                                                 .device_part = no_part,
                                                 .version = "0.0"};

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code > 0 && swn_engine_trap((uintptr_t)info->si_addr))
        return;
    static const char text[] = "a fault that is not the engine's\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    signal(sig, SIG_DFL);
}

size_t engine_device_budget;
const char *engine_disk;

const char *engine_store_dir(void)
{
    static char path[sizeof directory + 8];
    snprintf(path, sizeof path, "%s/store", directory);
    return path;
}

/* A thread that begins uses the allocator, and its lock, held at a fork, is held in the child for ever: in sanitizers'
 * allocator, that is, the C library's knows of forks. */
static void await_threads(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    for (int busy = 1; busy; usleep(100)) {
        DIR *dir = opendir("/proc/self/task");
        CHECK(dir);
        busy = 0;
        for (struct dirent *d; (d = readdir(dir));) {
            char path[300], line[512] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
            FILE *f = d->d_name[0] == '.' || atoi(d->d_name) == getpid() ? NULL : fopen(path, "re");
            if (f && fgets(line, sizeof line, f))
                busy |= !strstr(line, ") S ");
            if (f)
                fclose(f);
        }
        closedir(dir);
    }
#endif
}

int engine_begin(size_t budget, enum swn_config_fetch fetch, const struct swn_io *io)
{
    static struct swn_config config;
    char why[512] = "";
    config = (struct swn_config){.enabled = 1, .budget_bytes = budget, .fetch = (int)fetch, .enforce = 1};
    config.device_budget_bytes = engine_device_budget;
    snprintf(config.disk_path, sizeof config.disk_path, "%s", engine_disk ? engine_disk : "");
    snprintf(config.store_dir, sizeof config.store_dir, "%s", engine_store_dir());
    setenv("XDG_RUNTIME_DIR", directory, 1);
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &act, NULL);
    if (io)
        swn_engine_io = io;
    swn_hooks_threads_install(); /* also so that its pthread_create is linked: threads of the program are counted */
    int err = swn_runtime_start(&config, why, sizeof why);
    swn_engine_one.plan.replan.plans = 12; /* plans are made for what a test does, not for what else the machine does */
    if (err)
        fprintf(stderr, "engine: %s\n", why);
    else
        swn_engine_set_torch(&backend);
    await_threads();
    return err;
}

OUT_OF_SIGHT void tensor_stamp(struct tensor *t, uintptr_t at, uint64_t stamp)
{
    volatile uint64_t *word = (volatile uint64_t *)at;
    for (size_t i = 0; i < t->len / 8; i += LINE_WORDS)
        word[i] = stamp * 0x9E3779B97F4A7C15ULL + i;
    t->stamp = stamp;
}

OUT_OF_SIGHT int tensor_right_part(const struct tensor *t, uintptr_t at, size_t off, size_t len)
{
    const volatile uint64_t *word = (const volatile uint64_t *)at;
    for (size_t i = 0; i < len / 8; i += LINE_WORDS)
        if (word[i] != t->stamp * 0x9E3779B97F4A7C15ULL + off / 8 + i) {
            fprintf(stderr, "word %zu of stamp %llu is %llx\n", off / 8 + i, (unsigned long long)t->stamp,
                    (unsigned long long)word[i]);
            return 0;
        }
    return 1;
}

int tensor_right(const struct tensor *t, uintptr_t at)
{
    return tensor_right_part(t, at, 0, t->len);
}

int tensor_make(struct tensor *t, size_t len, uint64_t stamp)
{
    int strict;
    void *p = swn_engine_alloc(len, &strict);
    if (!p)
        return 0;
    *t = (struct tensor){.word = p, .own = (uintptr_t)p, .len = len};
    tensor_stamp(t, t->own, stamp);
    swn_engine_after_alloc();
    return 1;
}

void tensor_free(struct tensor *t)
{
    CHECK(swn_engine_free((void *)t->own) == 1);
    t->word = NULL;
    t->own = 0;
}

void op_open(struct swn_op *op, struct tensor **tensors, const enum swn_use *uses, unsigned n)
{
    memset(op, 0x5a, sizeof *op); /* the torch backend fills in its own fields only */
    op->name = "aten::test";
    op->n = n;
    op->copies = op->asks = 0;
    op->flops = op->flops_before = 0;
    op->small = op->small_before = (struct swn_small){0};
    for (unsigned i = 0; i < n; i++) {
        op->args[i].mapped = 0;
        op->args[i].data = (uintptr_t)__atomic_load_n(&tensors[i]->word, __ATOMIC_ACQUIRE);
        op->args[i].bytes = op->args[i].upto = tensors[i]->len;
        op->args[i].from = 0;
        op->args[i].use = uses[i];
    }
    swn_engine_op_begin(op);
}

void op_close(struct swn_op *op)
{
    swn_engine_op_end(op);
}

void op_read(struct tensor *t)
{
    static const enum swn_use use = SWN_USE_WEIGHT;
    struct swn_op op;
    op_open(&op, &t, &use, 1);
    CHECK(tensor_right(t, (uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE)));
    op_close(&op);
    CHECK((uintptr_t)__atomic_load_n(&t->word, __ATOMIC_ACQUIRE) == t->own);
}

/* Calls `is` for each frame that has bytes of the tensor; 1 as soon as that is not 0. */
static int some_frame(const struct tensor *t, int (*is)(const struct swn_frame *f, const struct swn_part *p))
{
    struct swn_engine *e = &swn_engine_one;
    int some = 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, swn_round_up(t->own, SWN_PAGE));
    struct swn_chunks all = r ? swn_residency_chunks(&e->res, r) : (struct swn_chunks){0};
    for (uint64_t c = all.first; e->pool && c < all.end; c++) {
        const struct swn_frame *f = swn_pool_chunk(e->pool, c)->frame;
        for (unsigned i = 0; f && i < f->n; i++)
            some |= f->parts[i].range == r && is(f, &f->parts[i]);
    }
    pthread_mutex_unlock(&e->lock);
    return some;
}

static int any_part(const struct swn_frame *f, const struct swn_part *p)
{
    (void)f, (void)p;
    return 1;
}

static int mapped_part(const struct swn_frame *f, const struct swn_part *p)
{
    (void)f;
    return p->mapped;
}

int tensor_in_frames(const struct tensor *t)
{
    return some_frame(t, any_part);
}

int tensor_mapped(const struct tensor *t)
{
    return some_frame(t, mapped_part);
}

int tensor_streams(const struct tensor *t)
{
    struct swn_engine *e = &swn_engine_one;
    int streams = 0;
    pthread_mutex_lock(&e->lock);
    struct swn_range *r = swn_arena_find(e->arena, swn_round_up(t->own, SWN_PAGE));
    struct swn_chunks all = swn_residency_chunks(&e->res, r);
    for (uint64_t c = all.first; e->pool && c < all.end; c++)
        streams |= !swn_pool_chunk(e->pool, c)->plan_keep;
    pthread_mutex_unlock(&e->lock);
    return streams;
}

size_t engine_kept_bytes(void)
{
    struct swn_pool *pool = swn_engine_one.pool;
    return pool ? swn_pool_pinned(pool) * swn_pool_unit(pool) : 0;
}

size_t engine_window_bytes(void)
{
    struct swn_pool *pool = swn_engine_one.pool;
    return pool ? swn_pool_bytes(pool) - engine_kept_bytes() : 0;
}

size_t op_slices(struct swn_op *op, unsigned index, size_t *bytes, size_t most)
{
    struct swn_slices kinds[256];
    size_t n = 0, count = swn_slice_list(op, index, kinds, 256);
    for (size_t kind = 0; kind < count; kind++)
        for (size_t i = 0; i < kinds[kind].count; i++) {
            CHECK(n < most);
            bytes[n++] = kinds[kind].bytes;
        }
    return n;
}

int weights_file(unsigned n, size_t bytes_each, void (*name_of)(char *name, unsigned i), uint64_t *data_off)
{
    char name[64], path[300];
    static char header[16384];
    static unsigned files;
    size_t at = 8;
    at += (size_t)sprintf(header + at, "{");
    for (unsigned i = 0; i < n; i++) {
        name_of(name, i);
        at += (size_t)sprintf(header + at, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                              i ? "," : "", name, bytes_each / 4, i * bytes_each, (i + 1) * bytes_each);
    }
    at += (size_t)sprintf(header + at, "}");
    while (at % 64)
        header[at++] = ' ';
    uint64_t bytes = at - 8;
    memcpy(header, &bytes, 8);
    *data_off = at;
    snprintf(path, sizeof path, "%s/%u.safetensors", directory, ++files);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, header, at) == (ssize_t)at);
    void *bytes_of = aligned_alloc(4096, swn_round_up(bytes_each, 4096));
    for (unsigned i = 0; i < n; i++) {
        struct tensor t = {.len = bytes_each};
        memset(bytes_of, 0, bytes_each);
        tensor_stamp(&t, (uintptr_t)bytes_of, i + 100);
        CHECK(write(fd, bytes_of, bytes_each) == (ssize_t)bytes_each);
    }
    free(bytes_of);
    return fd;
}

void engine_reads_arrive(void)
{
    struct swn_engine *e = &swn_engine_one;
    for (int coming = 1; coming; usleep(1000)) {
        pthread_mutex_lock(&e->lock);
        coming = 0;
        for (const struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next)
            coming |= f->pending != 0;
        pthread_mutex_unlock(&e->lock);
    }
}

struct swn_counters engine_counters(void)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    struct swn_counters counters = e->counters;
    pthread_mutex_unlock(&e->lock);
    return counters;
}

void engine_is_empty(void)
{
    struct swn_engine *e = &swn_engine_one;
    pthread_mutex_lock(&e->lock);
    swn_write_behind_drain(e);
    pthread_mutex_unlock(&e->lock);
    CHECK(e->ops.open == NULL);
    CHECK(swn_arena_first(e->arena) == NULL);
    CHECK(e->weights.live == 0);
    CHECK(e->counters.live_bytes == 0);
    CHECK(e->res.resident_bytes == 0);
    CHECK(e->weights.resident_bytes == 0);
    /* Reads under way end by themselves; frames of dead ranges go with them. */
    int left = 1;
    for (int tries = 0; tries < 2000 && left; tries++) {
        pthread_mutex_lock(&e->lock);
        left = 0;
        for (struct swn_frame *f = e->pool ? swn_pool_first(e->pool) : NULL; f; f = f->next) {
            CHECK(swn_pool_chunk(e->pool, f->chunk)->users == 0);
            for (unsigned i = 0; i < f->n; i++)
                CHECK(f->parts[i].range == NULL);
            left++;
        }
        pthread_mutex_unlock(&e->lock);
        if (left)
            usleep(1000);
    }
    CHECK(left == 0);
    CHECK(!e->pool || swn_pool_pinned(e->pool) == 0);
    CHECK(!e->writes.spill || e->writes.spill->live_bytes == 0);
}

int redirect_stderr(int fd)
{
    if (dup2(fd, STDERR_FILENO) < 0)
        return -1;
    swn_say_redirected();
    return 0;
}
