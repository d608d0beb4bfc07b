/* Description: which library goes before a program, and which program cannot have it; files may be anything. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/protocol/elf_file.h"
#include "scheduler/protocol/preload.h"

static char dir[64], file[PATH_MAX];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/t_preload.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(dir);
}

static const char *write_file(const char *name, const void *bytes, size_t size)
{
    unlink(file);
    snprintf(file, sizeof file, "%s/%s", dir, name);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
    return file;
}

struct program {
    Elf64_Ehdr header;
    Elf64_Phdr parts[2];
    char loader[40];
};

static struct program program_of(unsigned machine, const char *loader)
{
    struct program p = {
        .header = {.e_type = ET_DYN,
                   .e_machine = (Elf64_Half)machine,
                   .e_phoff = offsetof(struct program, parts),
                   .e_phentsize = sizeof(Elf64_Phdr),
                   .e_phnum = 2},
        .parts = {{.p_type = PT_PHDR},
                  {.p_type = PT_INTERP, .p_offset = offsetof(struct program, loader), .p_filesz = strlen(loader) + 1}}};
    memcpy(p.header.e_ident, ELFMAG, SELFMAG);
    p.header.e_ident[EI_CLASS] = ELFCLASS64;
    p.header.e_ident[EI_DATA] = ELFDATA2LSB;
    strcpy(p.loader, loader);
    return p;
}

static void a_program_says_what_it_is(void **state)
{
    struct program p = program_of(EM_AARCH64, "/lib/ld-musl-aarch64.so.1");
    struct swn_elf elf;
    (void)state;
    assert_int_equal(swn_elf_read(write_file("p", &p, sizeof p), &elf), 0);
    assert_string_equal(elf.loader, "/lib/ld-musl-aarch64.so.1");
    assert_string_equal(swn_elf_machine(&elf), "AArch64");
    assert_true(swn_elf_is_musl(&elf));
    assert_int_equal(swn_elf_read("/proc/self/exe", &elf), 0);
    assert_false(swn_elf_is_musl(&elf));
}

/* Cut at each length, and with each byte of its headers changed: an answer, and no crash. */
static void damaged_files(void **state)
{
    struct program p = program_of(EM_X86_64, "/lib64/ld-linux-x86-64.so.2");
    struct swn_elf elf;
    (void)state;
    for (size_t length = 0; length < offsetof(struct program, loader); length += 7)
        assert_int_equal(swn_elf_read(write_file("cut", &p, length), &elf), -ENOEXEC);
    for (size_t i = 0; i < offsetof(struct program, loader); i++) {
        struct program other = p;
        ((unsigned char *)&other)[i] ^= 0xff;
        int rc = swn_elf_read(write_file("changed", &other, sizeof other), &elf);
        assert_true(rc == 0 || rc == -ENOEXEC);
        if (!rc)
            assert_true(strlen(elf.loader) < SWN_ELF_LOADER);
    }
    assert_int_equal(swn_elf_read(dir, &elf), -ENOEXEC);
    assert_int_equal(swn_elf_read("/dev/null", &elf), -ENOEXEC);
    assert_int_equal(swn_elf_read("/nowhere", &elf), -ENOENT);
}

static void a_library_that_cannot_be_used(void **state)
{
    static const char text[] = "#!/bin/sh\n";
    char out[PATH_MAX], why[SWN_ERRMSG];
    (void)state;
    assert_int_equal(swn_preload_find("/nowhere/libswapnet.so", out, why), -ENOENT);
    assert_non_null(strstr(why, "No such file"));
    assert_int_equal(swn_preload_find(write_file("text.so", text, sizeof text), out, why), -ENOEXEC);
    assert_non_null(strstr(why, "no shared library"));
    assert_int_equal(swn_preload_find(write_file("a b.so", text, sizeof text), out, why), -EINVAL);
    assert_non_null(strstr(why, "a space or a colon"));
}

static void programs_that_cannot_have_it(void **state)
{
    struct swn_elf own;
    char why[SWN_ERRMSG] = "";
    (void)state;
    assert_int_equal(swn_elf_read("/proc/self/exe", &own), 0);
    struct program musl = program_of(own.machine, "/lib/ld-musl-x86_64.so.1");
    assert_int_equal(swn_preload_fits("/proc/self/exe", write_file("musl", &musl, sizeof musl), why), -ENOEXEC);
    assert_non_null(strstr(why, "needs glibc"));
    struct program other = program_of(own.machine == EM_X86_64 ? EM_AARCH64 : EM_X86_64, "/lib/ld-linux.so");
    assert_int_equal(swn_preload_fits("/proc/self/exe", write_file("other", &other, sizeof other), why), -ENOEXEC);
    assert_non_null(strstr(why, own.machine == EM_X86_64 ? "is a program for AArch64" : "is a program for x86-64"));
    assert_int_equal(swn_preload_fits("/proc/self/exe", write_file("script", "#!/bin/sh\n", 10), why), 0);
    assert_int_equal(swn_preload_fits("/proc/self/exe", "/nowhere", why), 0);
    assert_int_equal(swn_preload_fits("/proc/self/exe", "/proc/self/exe", why), 0);
}

static void the_program_of_a_command(void **state)
{
    char out[PATH_MAX], path[PATH_MAX + 64];
    (void)state;
    write_file("tool", "#!/bin/sh\n", 10);
    snprintf(path, sizeof path, "/nowhere:%s", dir);
    setenv("PATH", path, 1);
    assert_int_equal(swn_preload_program("tool", out), 0);
    assert_string_equal(out, file);
    assert_int_equal(swn_preload_program("other", out), -ENOENT);
    assert_int_equal(swn_preload_program("", out), -ENOENT);
    assert_int_equal(swn_preload_program(dir, out), -ENOENT);
    chmod(file, 0600);
    if (geteuid() != 0 || access(file, X_OK))
        assert_int_equal(swn_preload_program("tool", out), -ENOENT);
    setenv("PATH", "", 1);
    assert_int_equal(chdir(dir), 0);
    chmod(file, 0700);
    assert_int_equal(swn_preload_program("tool", out), 0); /* an empty path is the working directory */
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_says_what_it_is, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(damaged_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_library_that_cannot_be_used, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(programs_that_cannot_have_it, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_program_of_a_command, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
