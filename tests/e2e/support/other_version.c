/* other_version.c - a preload that makes swapnetd one of another version. $OTHER_VERSION is "newer": it says version 2,
 * sends an unknown message before each lease, and an unknown field in it; or "older": it says version 0, and ignores
 * half of the fields that clients send. Steps that change a message keep its length, as callers count what they sent.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int is(const char *version)
{
    const char *mine = getenv("OTHER_VERSION");
    return mine && !strcmp(mine, version);
}

static void replace(char *text, size_t n, const char *old, const char *new)
{
    size_t len = strlen(old);
    for (char *at = text; (at = memmem(at, n - (size_t)(at - text), old, len)); at += len)
        memcpy(at, new, len);
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    static const char *const later[] = {"urgency", "curve", "cap", "latency", "weights", "resident"};
    static ssize_t (*real)(int, void *, size_t, int);
    if (!real)
        real = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    ssize_t got = real(fd, buf, n, flags);
    for (size_t i = 0; got > 0 && is("older") && i < sizeof later / sizeof later[0]; i++) {
        char old[16] = "\"", new[16] = "\"x";
        strcat(strcat(old, later[i]), "\":");
        strcat(strcat(new, later[i] + 1), "\":");
        replace(buf, (size_t)got, old, new);
    }
    return got;
}

static const char lease[] = "{\"op\":\"lease\",";
static const char before[] = "{\"op\":\"dance\",\"steps\":[1,{\"a\":null}]}\n{\"color\":[1,{\"a\":2}],";

/* Messages follow each other in what is sent, so a lease is at the start of a line. */
static ssize_t send_newer(ssize_t (*real)(int, const void *, size_t, int), int fd, const char *text, size_t n,
                          int flags)
{
    const char *at = memmem(text, n, lease, sizeof lease - 1);
    if (!at)
        return real(fd, text, n, flags);
    if (at > text)
        return real(fd, text, (size_t)(at - text), flags); /* the rest is sent by the next call */
    char *whole = malloc(sizeof before + n);
    const char *end = memchr(text, '\n', n);
    size_t line = end ? (size_t)(end - text) + 1 : n;
    if (!whole)
        return real(fd, text, n, flags);
    memcpy(whole, before, sizeof before - 1);
    memcpy(whole + sizeof before - 1, text + 1, line - 1);
    ssize_t sent = real(fd, whole, sizeof before - 1 + line - 1, flags);
    free(whole);
    /* A client whose socket is so full is hung up on. */
    return sent < 0 || (size_t)sent == sizeof before - 1 + line - 1 ? (sent < 0 ? sent : (ssize_t)line) : -1;
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    static ssize_t (*real)(int, const void *, size_t, int);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    if (!is("newer") && !is("older"))
        return real(fd, buf, n, flags);
    char *text = malloc(n);
    if (!text)
        return real(fd, buf, n, flags);
    memcpy(text, buf, n);
    replace(text, n, "\"version\":1", is("newer") ? "\"version\":2" : "\"version\":0");
    ssize_t sent = is("newer") ? send_newer(real, fd, text, n, flags) : real(fd, text, n, flags);
    free(text);
    return sent;
}
