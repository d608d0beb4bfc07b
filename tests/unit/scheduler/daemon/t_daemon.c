/* Description: the parts of swapnetd that touch the system: memory there is, CPUs, systemd, lines, leases on record. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu_binding.h"
#include "scheduler/daemon/lease_file.h"
#include "scheduler/protocol/lease_record.h"
#include "base/system_memory.h"
#include "scheduler/protocol/systemd.h"
#include "base/process.h"
#include "base/process_memory.h"
#include "base/errmsg.h"

#define MIB ((uint64_t)1 << 20)

static char base[64];

static int make_base(void **state)
{
    (void)state;
    strcpy(base, "/tmp/t_daemon.XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int remove_base(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

static void put(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s", base, path);
    for (char *slash = strchr(whole + strlen(base) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0755);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

/* ---- memory ---- */

static void memory_there_is(void **state)
{
    struct swn_memory m;
    (void)state;
    assert_int_equal(swn_memory_read(&m, base), -ENOENT);
    put("/proc/meminfo", "MemTotal: 8000000 kB\nMemFree: 1 kB\n");
    assert_int_equal(swn_memory_read(&m, base), -ENODATA);
    put("/proc/meminfo", "MemTotal:  8000000 kB\nMemAvailable:    2048 kB\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.available, 2 * MIB);
    assert_true(m.cgroup_limit == UINT64_MAX && m.pressure < 0);
    put("/proc/pressure/memory", "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00\n");
    /* Version 2: the limit that leaves least, on the way to the root. */
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "1000000\n");
    put("/sys/fs/cgroup/a/memory.current", "400000\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_limit, 1000000);
    assert_int_equal(m.cgroup_usage, 400000);
    assert_true(m.pressure > 12.4 && m.pressure < 12.6);
    put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 150000\nactive_file 7\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_usage, 250000);
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 900000\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_usage, 0);
    put("/sys/fs/cgroup/a/b/memory.max", "5000000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "4900000\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_limit, 5000000);
    put("/sys/fs/cgroup/a/b/memory.high", "max\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_limit, 5000000);
    put("/sys/fs/cgroup/a/b/memory.max", "max\n"); /* as with MemoryHigh= of systemd */
    put("/sys/fs/cgroup/a/b/memory.high", "4950000\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_limit, 4950000);
    put("/sys/fs/cgroup/a/b/memory.max", "4920000\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_limit, 4920000);
    /* Version 1, and its way to say "none". */
    put("/proc/self/cgroup", "5:cpu:/x\n4:memory:/c\n0::/\n");
    put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "100\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 40\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_int_equal(m.cgroup_limit, 2000000);
    assert_int_equal(m.cgroup_usage, 60);
    put("/proc/self/cgroup", "4:memory:/../..\nrubbish\n:\n\n::\n");
    put("/proc/pressure/memory", "some avg10=900\n");
    assert_int_equal(swn_memory_read(&m, base), 0);
    assert_true(m.cgroup_limit == UINT64_MAX && m.pressure < 0);
    assert_int_equal(swn_memory_read(&m, ""), 0); /* this machine's own */
    assert_true(m.available > MIB);
}

/* Files here take any text; what the kernel is told is what counts. */
static void pressure(void **state)
{
    char text[64], path[256];
    struct stat st;
    int fd;
    (void)state;
    put("/proc/self/cgroup", "4:memory:/c\n0::/\n");
    put("/proc/pressure/memory", "");
    put("/sys/fs/cgroup/p/memory.pressure", "");
    fd = swn_pressure_open_own(base);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, text, sizeof text, 0), sizeof "some 100000 1000000");
    assert_string_equal(text, "some 100000 1000000");
    close(fd);
    put("/proc/pressure/memory", "");
    put("/proc/self/cgroup", "0::/p\n");
    fd = swn_pressure_open_own(base);
    assert_true(pread(fd, text, sizeof text, 0) > 0);
    close(fd);
    assert_int_equal(stat(strcat(strcpy(path, base), "/proc/pressure/memory"), &st), 0);
    assert_int_equal(st.st_size, 0); /* the machine's is nobody's business there */
    fd = swn_pressure_open(base);    /* for a daemon, which is alone in that group, it is the one */
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size > 0);
    close(fd);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size > 0);
    put("/proc/pressure/memory", "");
    put("/proc/self/cgroup", "0::/q/../p\n");
    fd = swn_pressure_open_own(base);
    assert_true(pread(fd, text, sizeof text, 0) > 0); /* the machine's */
    close(fd);
    assert_int_equal(swn_pressure_open("/nonexistent"), -ENOENT);
    assert_int_equal(swn_pressure_open_own("/nonexistent"), -ENOENT);
}

/* What a whole process may have, less what is no tensor. */
static void whole_process(void **state)
{
    struct swn_process_memory w = {.limit = 1000 * MIB, .least = 100 * MIB};
    struct swn_process_memory_rss rss;
    (void)state;
    assert_int_equal(swn_process_memory_read(&rss, base), -ENOENT);
    put("/proc/self/status", "Name: x\nVmRSS: 9 kB\nRssAnon:\t    2048 kB\n");
    assert_int_equal(swn_process_memory_read(&rss, base), -ENODATA);
    put("/proc/self/status", "Name: x\nRssAnon:\t    2048 kB\nRssFile:\t1024 kB\nRssShmem:  7 kB\n");
    assert_int_equal(swn_process_memory_read(&rss, base), 0);
    assert_true(rss.anon == 2 * MIB && rss.file == MIB);
    uint64_t most = swn_process_memory_budget(&w, &rss, 0, 8 * MIB);
    assert_true(most < 900 * MIB && most > 870 * MIB); /* never more than it had at the start */
    rss = (struct swn_process_memory_rss){.anon = 700 * MIB, .file = 50 * MIB};
    uint64_t less = swn_process_memory_budget(&w, &rss, 500 * MIB, 8 * MIB);
    assert_int_equal(most - less, 150 * MIB);
    assert_int_equal(swn_process_memory_budget(&w, &rss, 400 * MIB, 8 * MIB), less - 100 * MIB); /* at once */
    uint64_t now = 0, before = less - 100 * MIB;
    for (int i = 0; i < 200; i++, before = now) { /* and bit by bit back */
        now = swn_process_memory_budget(&w, &rss, 650 * MIB, 8 * MIB);
        assert_true(now >= before && now - before <= 25 * MIB);
    }
    assert_int_equal(now, most);
    rss.anon = 2000 * MIB;
    assert_int_equal(swn_process_memory_budget(&w, &rss, 0, 8 * MIB), 8 * MIB);
}

static void following_memory(void **state)
{
    struct swn_memory m = {.available = 600 * MIB, .cgroup_limit = UINT64_MAX, .pressure = 0};
    struct swn_follow f = {.share = 0.5, .ease = 1};
    (void)state;
    assert_int_equal(swn_follow_total(&f, &m, 400 * MIB), 500 * MIB);
    m.cgroup_limit = 300 * MIB;
    m.cgroup_usage = 200 * MIB;
    assert_int_equal(swn_follow_total(&f, &m, 400 * MIB), 250 * MIB);
    m.cgroup_usage = 900 * MIB;
    assert_int_equal(swn_follow_total(&f, &m, 400 * MIB), 200 * MIB);
    m.cgroup_limit = UINT64_MAX;
    m.pressure = 30;
    uint64_t before = 500 * MIB, now;
    for (int i = 0; i < 3; i++, before = now) {
        now = swn_follow_total(&f, &m, 400 * MIB);
        assert_true(now < before * 19 / 20);
    }
    for (int i = 0; i < 100; i++)
        now = swn_follow_total(&f, &m, 400 * MIB);
    assert_int_equal(now, 125 * MIB); /* never less than a quarter */
    m.pressure = 0;
    for (int i = 0; i < 100; i++) {
        before = now;
        now = swn_follow_total(&f, &m, 400 * MIB);
        assert_true(now >= before);
    }
    assert_int_equal(now, 500 * MIB);
}

/* ---- CPUs ---- */

static void lists_of_cpus(void **state)
{
    static const char *const wrong[] = {"", ",", "a", "1-", "-1", "3-1", "1,", "1,,2", "1 2", "99999", "0x1", "1-2-3"};
    cpu_set_t set;
    char buf[64];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_true(swn_cpus_parse(wrong[i], &set) < 0);
    assert_int_equal(swn_cpus_parse("0-3,6,9-9", &set), 0);
    assert_int_equal(CPU_COUNT(&set), 6);
    assert_string_equal(swn_cpus_format(buf, sizeof buf, &set), "0-3,6,9");
}

static void parts_of_cpus(void **state)
{
    cpu_set_t all, part, seen;
    (void)state;
    assert_int_equal(swn_cpus_parse("1-7", &all), 0);
    for (size_t n = 1; n <= 20; n++) {
        int least = 99, most = 0;
        CPU_ZERO(&seen);
        for (size_t i = 0; i < n; i++) {
            swn_cpus_part(&all, n, i, &part);
            int count = CPU_COUNT(&part);
            least = count < least ? count : least;
            most = count > most ? count : most;
            cpu_set_t both;
            CPU_AND(&both, &seen, &part);
            assert_true(n > 7 || CPU_COUNT(&both) == 0);
            CPU_OR(&seen, &seen, &part);
        }
        assert_true(least >= 1 && most - least <= 1);
        assert_true(n > 7 || CPU_EQUAL(&seen, &all));
    }
    CPU_ZERO(&all);
    swn_cpus_part(&all, 3, 1, &part);
    assert_int_equal(CPU_COUNT(&part), 0);
}

/* ---- systemd ---- */

static void notify(void **state)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char text[96] = "";
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(swn_notify("READY=1"), 0);
    setenv("NOTIFY_SOCKET", "relative", 1);
    assert_int_equal(swn_notify("READY=1"), -EINVAL);
    for (int abstract = 0; abstract < 2; abstract++) {
        snprintf(sa.sun_path, sizeof sa.sun_path, "%s/n", base);
        setenv("NOTIFY_SOCKET", sa.sun_path, 1);
        assert_int_equal(swn_notify("READY=1") < 0, 1);
        size_t len = strlen(sa.sun_path);
        if (abstract) {
            sa.sun_path[0] = '@';
            setenv("NOTIFY_SOCKET", sa.sun_path, 1);
            sa.sun_path[0] = '\0';
        }
        int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&sa, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
                         0);
        assert_int_equal(swn_notify("READY=1"), 0);
        memset(text, 0, sizeof text);
        assert_int_equal(recv(fd, text, sizeof text, 0), 7);
        assert_string_equal(text, "READY=1");
        close(fd);
        snprintf(text, sizeof text, "%s/n", base);
        unlink(text);
        memset(&sa.sun_path, 0, sizeof sa.sun_path);
    }
    unsetenv("NOTIFY_SOCKET");
}

static void no_socket_for_us(void **state)
{
    (void)state;
    setenv("LISTEN_PID", "1", 1);
    setenv("LISTEN_FDS", "1", 1);
    assert_int_equal(swn_notify_socket(), -ENOENT); /* another process's */
    assert_null(getenv("LISTEN_FDS"));
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "2", 1);
    assert_int_equal(swn_notify_socket(), -EINVAL);
    assert_int_equal(swn_notify_socket(), -ENOENT);
}

/* ---- lines ---- */

static void lines_in_pieces(void **state)
{
    int ends[2];
    struct swn_lines l;
    size_t len;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    swn_lines_init(&l);
    assert_int_equal(swn_lines_fill(&l, ends[1], 5), -EAGAIN);
    assert_int_equal(swn_lines_deadline(&l), -1);
    assert_int_equal(send(ends[0], "one\ntw", 6, 0), 6);
    assert_int_equal(swn_lines_fill(&l, ends[1], 10), 6);
    assert_string_equal(swn_lines_next(&l, &len), "one");
    assert_null(swn_lines_next(&l, &len));
    assert_int_equal(swn_lines_deadline(&l), 10 + SWN_WIRE_FRAME_MS);
    assert_int_equal(send(ends[0], "o", 1, 0), 1); /* the clock runs from the line's first byte */
    assert_int_equal(swn_lines_fill(&l, ends[1], 500), 1);
    assert_int_equal(swn_lines_deadline(&l), 10 + SWN_WIRE_FRAME_MS);
    assert_int_equal(send(ends[0], "\n\n", 2, 0), 2);
    assert_int_equal(swn_lines_fill(&l, ends[1], 600), 2);
    assert_string_equal(swn_lines_next(&l, &len), "two");
    assert_string_equal(swn_lines_next(&l, &len), "");
    assert_int_equal(swn_lines_deadline(&l), -1);
    static char much[SWN_WIRE_MOST];
    memset(much, 'x', sizeof much);
    assert_int_equal(send(ends[0], much, sizeof much, 0), sizeof much);
    int rc;
    while ((rc = swn_lines_fill(&l, ends[1], 700)) > 0)
        assert_null(swn_lines_next(&l, &len));
    assert_int_equal(rc, -EMSGSIZE);
    close(ends[0]);
    swn_lines_free(&l);
    assert_int_equal(swn_lines_fill(&l, ends[1], 800), -EPIPE);
    swn_lines_free(&l);
    close(ends[1]);
}

static void messages(void **state)
{
    struct swn_wire m = {.op = SWN_WIRE_HELLO, .version = 1}, out;
    char line[4096], why[SWN_WIRE_TEXT];
    static const char *const wrong[] = {"",
                                        "null",
                                        "[]",
                                        "{}",
                                        "{\"op\":1}",
                                        "{\"op\":\"hello\"}",
                                        "{\"op\":\"hello\",\"version\":\"1\"}",
                                        "{\"op\":\"lease\",\"seq\":1}",
                                        "{\"op\":\"lease\",\"seq\":-1,\"budget\":1}",
                                        "{\"op\":\"lease\",\"seq\":1,\"budget\":4503599627370497}",
                                        "{\"op\":\"lease\",\"seq\":1,\"budget\":1.5}",
                                        "{\"op\":\"set\",\"urgency\":0}",
                                        "{\"op\":\"set\",\"urgency\":1e9}",
                                        "{\"op\":\"set\",\"budget\":null}",
                                        "{\"op\":\"update\",\"curve\":[1]}",
                                        "{\"op\":\"update\",\"curve\":[2,1,2,1]}",
                                        "{\"op\":\"update\",\"curve\":[1,-1]}",
                                        "{\"op\":\"update\",\"name\":\"a\\u0000b\"}",
                                        "{\"op\":\"list\",\"op\":\"list\"}",
                                        "{\"op\":\"list\"} x"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        why[0] = '\0';
        assert_int_equal(swn_wire_decode(&out, wrong[i], strlen(wrong[i]), why), -EINVAL);
        assert_true(why[0]);
    }
    m.has = SWN_HAS_VERSION | SWN_HAS_NAME | SWN_HAS_CURVE | SWN_HAS_LATENCY | SWN_HAS_DEMAND;
    strcpy(m.name, "n\"\\");
    m.latency = 0.1;
    m.demand = SWN_WIRE_BYTES_MOST;
    for (m.points = 0; m.points < SWN_WIRE_POINTS; m.points++)
        m.curve[m.points] = (struct swn_divide_point){m.points * 3, 1.0 / (1 + (double)m.points)};
    int n = swn_wire_encode(&m, line, sizeof line);
    assert_true(n > 0);
    assert_int_equal(swn_wire_decode(&out, line, (size_t)n, why), 0);
    assert_memory_equal(&out, &m, sizeof m);
    assert_int_equal(swn_wire_encode(&m, line, 100), -EMSGSIZE);
    static const char other[] = "{\"op\":\"dance\",\"seq\":3,\"to\":[{}]}";
    assert_int_equal(swn_wire_decode(&out, other, strlen(other), why), 0);
    assert_int_equal(out.op, SWN_WIRE_UNKNOWN);
    static const char longer[] =
        "{\"op\":\"update\",\"name\":\"0123456789012345678901234567890123456789012345678901234567"
        "89012\xc3\xa4\"}"; /* cut between characters */
    assert_int_equal(swn_wire_decode(&out, longer, strlen(longer), why), 0);
    assert_int_equal(strlen(out.name), 63);
    static const char bad[] =
        "{\"op\":\"update\",\"name\":\"\\u001b\xc2\x9b\xc2\x80|\xe2\x80\xae\xe2\x80\xaa|\xe2\x81\xa6\xe2\x81\xa9|"
        "\xc2\xa0\xe2\x80\x94\xe2\x81\xa5\xe2\x81\xaa\"}";
    assert_int_equal(swn_wire_decode(&out, bad, strlen(bad), why), 0);
    assert_string_equal(out.name, "?????|??????|??????|\xc2\xa0\xe2\x80\x94\xe2\x81\xa5\xe2\x81\xaa");
}

/* ---- leases on record ---- */

static void nothing(void *user, struct swn_client_lease *p)
{
    (void)user;
    (void)p;
}

static void forget(struct swn_book *b)
{
    while (b->first) {
        b->first->attached = 0;
        swn_book_leave(b, b->first);
    }
}

/* Numbers and starts of processes come again after a boot. */
static void leases_of_another_boot_are_nobodys(void **state)
{
    struct swn_book b = {.total = 1000 * MIB, .offer = nothing}, again = b;
    struct swn_lease_total total = {.start_share = 0.75};
    char path[96], socket[96], boot[SWN_BOOT_ID], text[4096] = "";
    uint64_t start;
    (void)state;
    snprintf(path, sizeof path, "%s/boot.leases", base);
    snprintf(socket, sizeof socket, "%s/boot.sock", base);
    swn_boot_id(boot);
    assert_int_equal(strlen(boot), 36);
    assert_int_equal(swn_process_start(getpid(), &start), 0);
    swn_book_join(&b, getpid(), start, 200 * MIB);
    assert_int_equal(swn_lease_save(&b, &total, path), 0);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    assert_int_equal(again.count, 1);
    assert_int_equal(swn_lease_held(socket, 0), 1);
    forget(&again);

    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    char *at = strstr(text, boot);
    assert_non_null(at);
    at[0] = at[0] == '0' ? '1' : '0';
    rewind(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    assert_int_equal(again.count, 0);
    assert_int_equal(swn_lease_held(socket, 0), 0);
    forget(&b);
    unlink(path);
}

static void leases_on_record(void **state)
{
    struct swn_book b = {.total = 1000 * MIB, .offer = nothing}, again = b;
    struct swn_lease_total total = {.start_share = 0.75};
    char path[96];
    uint64_t start;
    (void)state;
    snprintf(path, sizeof path, "%s/leases", base);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        char *own = mmap(NULL, 40 * MIB, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
        memset(own, 1, 40 * MIB);
        (void)!write(ready[1], "", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(swn_process_start(child, &start), 0);
    struct swn_client_lease *p = swn_book_join(&b, child, start, 3000 * MIB);
    p->lease = 200 * MIB; /* told to shrink, not confirmed: what counts is what it may hold */
    p->set.urgency = 2.5;
    p->set.budget = 50 * MIB;
    p->uid = 42;
    strcpy(p->name, "a \"name\"");
    swn_book_join(&b, child, start + 1, 10 * MIB); /* another process, long ago */
    swn_book_join(&b, 1 << 22, 1, 10 * MIB);       /* no such process */
    assert_int_equal(swn_lease_save(&b, &total, path), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    assert_int_equal(again.count, 1);
    struct swn_client_lease *q = again.first;
    assert_int_equal(q->ceiling, 3000 * MIB);
    /* What is there of it, which is less than what it may hold; a sanitizer has memory there as well. */
    assert_true(swn_book_resident(&again) >= 40 * MIB && swn_book_resident(&again) < 1000 * MIB);
    q->ceiling = 20 * MIB;
    assert_int_equal(swn_book_resident(&again), 20 * MIB);
    assert_int_equal(q->set.budget, 50 * MIB);
    assert_true(q->set.urgency > 2.4 && q->uid == 42 && !q->attached);
    assert_string_equal(q->name, p->name);
    forget(&again);
    kill(child, SIGKILL);
    int watch = swn_process_watch(child);
    waitpid(child, NULL, 0);
    assert_true(watch >= 0 || watch == -ENOSYS);
    close(watch);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    assert_int_equal(again.count, 0);
    static const char *const rubbish[] = {"",
                                          "{",
                                          "[]",
                                          "{\"schema\":2,\"leases\":[]}",
                                          "{\"schema\":1}",
                                          "{\"schema\":1,\"leases\":[1]}",
                                          "{\"schema\":1,\"leases\":[{\"pid\":1}]}",
                                          "{\"schema\":1,\"leases\":[],\"set_total_bytes\":-1}",
                                          "{\"schema\":1,\"leases\":[],\"draining\":7}"};
    for (size_t i = 0; i < sizeof rubbish / sizeof *rubbish; i++) {
        put("/leases", rubbish[i]);
        assert_int_equal(swn_lease_load(&again, &total, path), -EINVAL);
    }
    assert_int_equal(symlink("/etc/passwd", strcat(path, ".link")), 0);
    assert_true(swn_lease_load(&again, &total, path) < 0);
    assert_true(swn_lease_save(&b, &total, "/nonexistent/leases") < 0);
    forget(&b);
    assert_int_equal(swn_process_start(1 << 22, &start), -ENOENT);
    assert_int_equal(swn_process_watch(1 << 22) < 0, 1);
}

/* What swapnetctl told the daemon before holds, unless the one that follows is started with another total. */
static void total_on_record(void **state)
{
    struct swn_book b = {.draining = 1, .offer = nothing}, again = {.offer = nothing};
    struct swn_lease_total total = {.set = 300 * MIB, .start_share = 0.75}, found = {.start_share = 0.75},
                           other = {.start_share = 0.5}, fixed = {.start_bytes = 64 * MIB, .start_share = 0.75};
    uint64_t start;
    char path[96];
    (void)state;
    snprintf(path, sizeof path, "%s/leases", base);
    assert_int_equal(swn_lease_save(&b, &total, path), 0);
    assert_int_equal(swn_lease_load(&again, &found, path), 0);
    assert_true(found.set == 300 * MIB && !again.draining); /* nobody is left to be drained */
    assert_int_equal(swn_lease_load(&again, &other, path), 0);
    assert_int_equal(swn_lease_load(&again, &fixed, path), 0);
    assert_true(!other.set && !fixed.set);
    total.start_bytes = 64 * MIB;
    assert_int_equal(swn_process_start(getpid(), &start), 0);
    assert_non_null(swn_book_join(&b, getpid(), start, MIB));
    assert_int_equal(swn_lease_save(&b, &total, path), 0);
    assert_int_equal(swn_lease_load(&again, &fixed, path), 0);
    assert_true(fixed.set == 300 * MIB && again.draining && again.count == 1);
    forget(&again);
    forget(&b);
}

/* As many as --clients allows at most, with names that take twice their length. */
static void many_on_record(void **state)
{
    struct swn_book b = {.offer = nothing}, again = {.offer = nothing};
    struct swn_lease_total total = {0};
    uint64_t start;
    char path[96];
    (void)state;
    snprintf(path, sizeof path, "%s/leases", base);
    assert_int_equal(swn_process_start(getpid(), &start), 0);
    for (uint64_t i = 0; i < 4096; i++) {
        struct swn_client_lease *p =
            swn_book_join(&b, getpid(), i == 4095 ? start : start + 1 + i, SWN_WIRE_BYTES_MOST);
        assert_non_null(p);
        memset(p->name, '"', sizeof p->name - 1);
    }
    assert_int_equal(swn_lease_save(&b, &total, path), 0);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    assert_int_equal(again.count, 1); /* the others are dead */
    forget(&again);
    forget(&b);
}

static void *wait_for_it(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* After exec it is the same process by number and time of start, but another program, which holds nothing. */
static void another_program(void **state)
{
    struct swn_book b = {.total = 1000 * MIB, .offer = nothing}, again = b;
    struct swn_lease_total total = {.start_share = 0.75};
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    uint64_t start;
    char path[96];
    (void)state;
    snprintf(path, sizeof path, "%s/leases", base);
    assert_int_equal(swn_process_has_thread(1 << 22, SWN_CLIENT_THREAD), -ENOENT);
    assert_int_equal(swn_process_has_thread(getpid(), SWN_CLIENT_THREAD), 0);
    assert_int_equal(swn_process_start(getpid(), &start), 0);
    struct swn_client_lease *p = swn_book_join(&b, getpid(), start, 300 * MIB);
    for (int has_library = 0; has_library < 2; has_library++) {
        p->has_library = has_library;
        assert_int_equal(swn_lease_save(&b, &total, path), 0);
        assert_int_equal(swn_lease_load(&again, &total, path), 0);
        assert_int_equal(again.count, !has_library);
        forget(&again);
    }
    pthread_mutex_lock(&lock);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &lock), 0);
    assert_int_equal(pthread_setname_np(thread, SWN_CLIENT_THREAD), 0);
    assert_int_equal(swn_process_has_thread(getpid(), SWN_CLIENT_THREAD), 1);
    assert_int_equal(swn_lease_load(&again, &total, path), 0);
    assert_true(again.count == 1 && again.first->has_library);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    forget(&again);
    forget(&b);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_base, remove_base)
    const struct CMUnitTest tests[] = {
        TEST(memory_there_is), TEST(pressure),       TEST(whole_process),    TEST(following_memory),
        TEST(lists_of_cpus),   TEST(parts_of_cpus),  TEST(notify),           TEST(no_socket_for_us),
        TEST(lines_in_pieces), TEST(messages),       TEST(leases_on_record), TEST(leases_of_another_boot_are_nobodys),
        TEST(total_on_record), TEST(many_on_record), TEST(another_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
