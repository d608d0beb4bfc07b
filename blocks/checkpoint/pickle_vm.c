/* blocks/checkpoint/pickle_vm.c - the machine: stack, marks, memo and the 32 opcodes. The meaning of globals is in
 * blocks/checkpoint/pickle_globals.c. */
#include "blocks/checkpoint/pickle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "blocks/checkpoint/builder.h"
#include "blocks/checkpoint/pickle_globals.h"
#include "base/errmsg.h"

enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINUNICODE = 'X',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_APPENDS = 'e',
    OP_BINFLOAT = 'G',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_EMPTY_LIST = ']',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
};

#define PROTOCOL 2

int swn_pickle_fail(struct swn_pickle_machine *m, const char *format, ...)
{
    char text[SWN_ERRMSG / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return swn_ckpt_fail(m->why, -EINVAL, "%.200s at byte %zu: %s", m->opts->name, m->op_at, text);
}

static int memory(struct swn_pickle_machine *m, int rc)
{
    return rc ? swn_ckpt_fail_memory(m->why, m->opts->name, rc) : 0;
}

int swn_pickle_make(struct swn_pickle_machine *m, enum swn_pickle_kind kind, struct swn_pickle_value **out)
{
    void *p;
    int rc = memory(m, swn_bump_alloc_take(m->bump, sizeof(**out), &p));
    if (rc)
        return rc;
    *out = p;
    (*out)->kind = (uint8_t)kind;
    (*out)->hashable = kind <= SWN_PV_OPAQUE || kind == SWN_PV_GLOBAL;
    return 0;
}

/* Room for one more in an array of `size`-byte items. */
static int grow(struct swn_pickle_machine *m, void **array, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return 0;
    size_t more = *room ? *room : 64;
    int rc = memory(m, swn_bump_alloc_charge(m->bump, more * size));
    if (rc)
        return rc;
    void *grown = realloc(*array, (*room + more) * size);
    if (!grown)
        return memory(m, -ENOMEM);
    *array = grown;
    *room += more;
    return 0;
}

static int push(struct swn_pickle_machine *m, struct swn_pickle_value *v)
{
    void *array = m->stack;
    int rc = grow(m, &array, &m->stack_room, m->depth, sizeof(v));
    m->stack = array;
    if (!rc)
        m->stack[m->depth++] = v;
    return rc;
}

/* How many values lie above the last mark: the values that an opcode may use. */
static size_t within_reach(const struct swn_pickle_machine *m)
{
    return m->depth - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

static int need(struct swn_pickle_machine *m, size_t n)
{
    return within_reach(m) < n ? swn_pickle_fail(m, "takes more from the stack than there is") : 0;
}

static int push_mark(struct swn_pickle_machine *m)
{
    void *array = m->marks;
    int rc = grow(m, &array, &m->mark_room, m->mark_count, sizeof(*m->marks));
    m->marks = array;
    if (!rc)
        m->marks[m->mark_count++] = m->depth;
    return rc;
}

/* Removes the last mark; *first, *n: the values above it, which stay on the stack for the caller to take. */
static int pop_mark(struct swn_pickle_machine *m, size_t *first, size_t *n)
{
    if (!m->mark_count)
        return swn_pickle_fail(m, "there is no mark");
    *first = m->marks[--m->mark_count];
    *n = m->depth - *first;
    return 0;
}

/* The n bytes behind the opcode. */
static int operand(struct swn_pickle_machine *m, size_t n, const unsigned char **out)
{
    if (n > m->len - m->at)
        return swn_pickle_fail(m, "the pickle ends inside an opcode");
    *out = (const unsigned char *)m->text + m->at;
    m->at += n;
    return 0;
}

static uint64_t little(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static int push_int(struct swn_pickle_machine *m, enum swn_pickle_kind kind, int64_t i)
{
    struct swn_pickle_value *v = NULL;
    int rc = swn_pickle_make(m, kind, &v);
    if (rc)
        return rc;
    v->i = i;
    return push(m, v);
}

static int push_new(struct swn_pickle_machine *m, enum swn_pickle_kind kind)
{
    struct swn_pickle_value *v = NULL;
    int rc = swn_pickle_make(m, kind, &v);
    return rc ? rc : push(m, v);
}

/* An integer of n bytes: two's complement, little-endian. For an integer beyond 64 bits the value is dropped. */
static int push_long(struct swn_pickle_machine *m)
{
    const unsigned char *p = NULL;
    int rc = operand(m, 1, &p);
    size_t n = rc ? 0 : *p;
    if (!rc)
        rc = operand(m, n, &p);
    if (rc)
        return rc;
    if (n > 8)
        return push_new(m, SWN_PV_OPAQUE);
    uint64_t v = little(p, n);
    if (n && n < 8 && p[n - 1] & 0x80)
        v |= UINT64_MAX << (8 * n);
    return push_int(m, SWN_PV_INT, (int64_t)v);
}

/* Has no character above U+00FF. */
static int is_latin1(const unsigned char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] > 0xc3)
            return 0;
    return 1;
}

static int push_text(struct swn_pickle_machine *m)
{
    const unsigned char *p = NULL;
    struct swn_pickle_value *v = NULL;
    int rc = operand(m, 4, &p);
    size_t n = rc ? 0 : (size_t)little(p, 4);
    if (!rc)
        rc = operand(m, n, &p);
    if (!rc && !swn_is_utf8((const char *)p, n))
        rc = swn_pickle_fail(m, "a text is not UTF-8");
    if (!rc)
        rc = swn_pickle_make(m, SWN_PV_TEXT, &v);
    if (rc)
        return rc;
    v->text = (const char *)p;
    v->count = (uint32_t)n;
    v->hash = XXH3_64bits(p, n);
    v->odd = !is_latin1(p, n);
    return push(m, v);
}

/* One line of GLOBAL's operand. */
static int line(struct swn_pickle_machine *m, const char **out, size_t *n)
{
    const char *begin = m->text + m->at, *end = memchr(begin, '\n', m->len - m->at);
    if (!end)
        return swn_pickle_fail(m, "the pickle ends inside an opcode");
    *out = begin;
    *n = (size_t)(end - begin);
    m->at += *n + 1;
    return 0;
}

static int push_global(struct swn_pickle_machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t module_len = 0, name_len = 0;
    struct swn_pickle_value *v = NULL;
    int rc = line(m, &module, &module_len);
    if (!rc)
        rc = line(m, &name, &name_len);
    if (!rc)
        rc = swn_pickle_global(m, module, module_len, name, name_len, &v);
    return rc ? rc : push(m, v);
}

/* The top n values become a tuple. */
static int make_tuple(struct swn_pickle_machine *m, size_t n)
{
    struct swn_pickle_value *v = NULL;
    void *items = NULL;
    int rc = need(m, n);
    if (!rc)
        rc = swn_pickle_make(m, SWN_PV_TUPLE, &v);
    if (!rc && n)
        rc = memory(m, swn_bump_alloc_take(m->bump, n * sizeof(*v->items), &items));
    if (rc)
        return rc;
    v->items = items;
    v->count = v->room = (uint32_t)n;
    v->hashable = 1;
    m->depth -= n;
    for (size_t i = 0; i < n; i++) {
        v->items[i] = m->stack[m->depth + i];
        v->hashable &= v->items[i]->hashable;
        v->odd |= v->items[i]->kind != SWN_PV_INT;
    }
    return push(m, v);
}

/* Appends the n values from stack[first] on to a list or dict. */
static int extend(struct swn_pickle_machine *m, struct swn_pickle_value *v, size_t first, size_t n)
{
    if (n > v->room - v->count) {
        size_t room = v->room ? (size_t)v->room * 2 : 4;
        if (room < v->count + n)
            room = v->count + n;
        if (room > UINT32_MAX)
            return swn_pickle_fail(m, "a container has too many items");
        void *items;
        int rc = memory(m, swn_bump_alloc_take(m->bump, room * sizeof(*v->items), &items));
        if (rc)
            return rc;
        if (v->count)
            memcpy(items, v->items, v->count * sizeof(*v->items));
        v->items = items;
        v->room = (uint32_t)room;
    }
    if (n)
        memcpy(v->items + v->count, m->stack + first, n * sizeof(*v->items));
    v->count += (uint32_t)n;
    return 0;
}

/* APPEND, APPENDS, SETITEM and SETITEMS: takes n values and adds them to the container below. */
static int add_items(struct swn_pickle_machine *m, enum swn_pickle_kind kind, size_t n)
{
    int rc = need(m, n + 1);
    if (rc)
        return rc;
    size_t first = m->depth - n;
    struct swn_pickle_value *v = m->stack[first - 1];
    if (v->kind != kind)
        return swn_pickle_fail(m, "adds items to something that is not a %s", kind == SWN_PV_LIST ? "list" : "dict");
    if (kind == SWN_PV_DICT) {
        if (n % 2)
            return swn_pickle_fail(m, "a key has no value");
        for (size_t i = 0; i < n; i += 2)
            if (!m->stack[first + i]->hashable)
                return swn_pickle_fail(m, "a dict key is neither a number, a text nor a tuple of them");
    } else {
        for (size_t i = 0; i < n; i++)
            v->odd |= !m->stack[first + i]->hashable;
    }
    rc = extend(m, v, first, n);
    m->depth = first;
    return rc;
}

static int add_marked(struct swn_pickle_machine *m, enum swn_pickle_kind kind)
{
    size_t first = 0, n = 0;
    int rc = pop_mark(m, &first, &n);
    return rc ? rc : add_items(m, kind, n);
}

/* A list's item is one value, a dict's is a key and a value. */
static int add_item(struct swn_pickle_machine *m, enum swn_pickle_kind kind)
{
    return add_items(m, kind, kind == SWN_PV_DICT ? 2 : 1);
}

static int memo_put(struct swn_pickle_machine *m, size_t index_bytes)
{
    const unsigned char *p = NULL;
    int rc = operand(m, index_bytes, &p);
    if (!rc)
        rc = need(m, 1);
    if (rc)
        return rc;
    size_t index = (size_t)little(p, index_bytes);
    /* Picklers count up; other indices would let two bytes ask for gigabytes. */
    if (index > m->memo_count)
        return swn_pickle_fail(m, "memo entry %zu comes before entry %zu", index, m->memo_count);
    void *array = m->memo;
    rc = grow(m, &array, &m->memo_room, index, sizeof(*m->memo));
    m->memo = array;
    if (rc)
        return rc;
    m->memo[index] = m->stack[m->depth - 1];
    m->memo_count += index == m->memo_count;
    return 0;
}

static int memo_get(struct swn_pickle_machine *m, size_t index_bytes)
{
    const unsigned char *p = NULL;
    int rc = operand(m, index_bytes, &p);
    if (rc)
        return rc;
    size_t index = (size_t)little(p, index_bytes);
    if (index >= m->memo_count)
        return swn_pickle_fail(m, "memo entry %zu does not exist", index);
    return push(m, m->memo[index]);
}

/* REDUCE and NEWOBJ: two values become one. */
static int call(struct swn_pickle_machine *m, int (*make)(struct swn_pickle_machine *, struct swn_pickle_value *,
                                                          struct swn_pickle_value *, struct swn_pickle_value **))
{
    struct swn_pickle_value *out = NULL;
    int rc = need(m, 2);
    if (rc)
        return rc;
    struct swn_pickle_value *args = m->stack[m->depth - 1], *function = m->stack[m->depth - 2];
    if (args->kind != SWN_PV_TUPLE || function->kind != SWN_PV_GLOBAL)
        return swn_pickle_fail(m, "calls something that is not a function, or without a tuple of arguments");
    rc = make(m, function, args, &out);
    m->depth -= 2;
    return rc ? rc : push(m, out);
}

static int call_function(struct swn_pickle_machine *m)
{
    return call(m, swn_pickle_reduce);
}

static int make_object(struct swn_pickle_machine *m)
{
    return call(m, swn_pickle_new);
}

static int build(struct swn_pickle_machine *m)
{
    int rc = need(m, 2);
    if (!rc)
        rc = swn_pickle_build(m, m->stack[m->depth - 2], m->stack[m->depth - 1]);
    m->depth--;
    return rc;
}

static int persistent(struct swn_pickle_machine *m)
{
    struct swn_pickle_value *out = NULL;
    int rc = need(m, 1);
    if (!rc)
        rc = swn_pickle_persistent(m, m->stack[m->depth - 1], &out);
    if (!rc)
        m->stack[m->depth - 1] = out;
    return rc;
}

static int marked_tuple(struct swn_pickle_machine *m)
{
    size_t first = 0, n = 0;
    int rc = pop_mark(m, &first, &n);
    return rc ? rc : make_tuple(m, n);
}

static int fixed_int(struct swn_pickle_machine *m, size_t n)
{
    const unsigned char *p = NULL;
    int rc = operand(m, n, &p);
    if (rc)
        return rc;
    uint64_t v = little(p, n);
    return push_int(m, SWN_PV_INT, n == 4 ? (int32_t)(uint32_t)v : (int64_t)v);
}

static int push_bool(struct swn_pickle_machine *m, size_t n)
{
    return push_int(m, SWN_PV_BOOL, (int64_t)n);
}

static int opaque_operand(struct swn_pickle_machine *m, size_t n)
{
    const unsigned char *p = NULL;
    int rc = operand(m, n, &p);
    return rc ? rc : push_new(m, SWN_PV_OPAQUE);
}

/* Each instruction has one of the three functions, or none: then the opcode is refused. */
struct instruction {
    int (*run)(struct swn_pickle_machine *m);
    int (*run_sized)(struct swn_pickle_machine *m, size_t n);
    int (*run_kind)(struct swn_pickle_machine *m, enum swn_pickle_kind kind);
    uint8_t n;    /* bytes of the operand, or values from the stack, or the value itself */
    uint8_t kind; /* enum swn_pickle_kind */
};

/* One entry for each value of a byte, so that no index lies beyond the end. */
static const struct instruction instructions[UINT8_MAX + 1] = {
    [OP_MARK] = {.run = push_mark},
    [OP_NONE] = {.run_kind = push_new, .kind = SWN_PV_NONE},
    [OP_NEWTRUE] = {.run_sized = push_bool, .n = 1},
    [OP_NEWFALSE] = {.run_sized = push_bool, .n = 0},
    [OP_BININT] = {.run_sized = fixed_int, .n = 4},
    [OP_BININT1] = {.run_sized = fixed_int, .n = 1},
    [OP_BININT2] = {.run_sized = fixed_int, .n = 2},
    [OP_LONG1] = {.run = push_long},
    [OP_BINFLOAT] = {.run_sized = opaque_operand, .n = 8},
    [OP_BINUNICODE] = {.run = push_text},
    [OP_EMPTY_LIST] = {.run_kind = push_new, .kind = SWN_PV_LIST},
    [OP_EMPTY_DICT] = {.run_kind = push_new, .kind = SWN_PV_DICT},
    [OP_EMPTY_TUPLE] = {.run_sized = make_tuple, .n = 0},
    [OP_TUPLE1] = {.run_sized = make_tuple, .n = 1},
    [OP_TUPLE2] = {.run_sized = make_tuple, .n = 2},
    [OP_TUPLE3] = {.run_sized = make_tuple, .n = 3},
    [OP_TUPLE] = {.run = marked_tuple},
    [OP_APPEND] = {.run_kind = add_item, .kind = SWN_PV_LIST},
    [OP_APPENDS] = {.run_kind = add_marked, .kind = SWN_PV_LIST},
    [OP_SETITEM] = {.run_kind = add_item, .kind = SWN_PV_DICT},
    [OP_SETITEMS] = {.run_kind = add_marked, .kind = SWN_PV_DICT},
    [OP_BINPUT] = {.run_sized = memo_put, .n = 1},
    [OP_LONG_BINPUT] = {.run_sized = memo_put, .n = 4},
    [OP_BINGET] = {.run_sized = memo_get, .n = 1},
    [OP_LONG_BINGET] = {.run_sized = memo_get, .n = 4},
    [OP_GLOBAL] = {.run = push_global},
    [OP_REDUCE] = {.run = call_function},
    [OP_NEWOBJ] = {.run = make_object},
    [OP_BUILD] = {.run = build},
    [OP_BINPERSID] = {.run = persistent},
};

static int step(struct swn_pickle_machine *m, unsigned char op)
{
    const struct instruction *i = &instructions[op];
    if (i->run)
        return i->run(m);
    if (i->run_sized)
        return i->run_sized(m, i->n);
    if (i->run_kind)
        return i->run_kind(m, (enum swn_pickle_kind)i->kind);
    return swn_pickle_fail(m, "opcode 0x%02x is not one that torch.save writes; save the state_dict alone", op);
}

static int run(struct swn_pickle_machine *m, struct swn_pickle_value **root)
{
    const unsigned char *p = NULL;
    int rc = operand(m, 2, &p);
    if (rc)
        return rc;
    if (p[0] != OP_PROTO)
        return swn_pickle_fail(m, "not a pickle that torch.save writes");
    if (p[1] != PROTOCOL)
        return swn_ckpt_fail(m->why, -ENOTSUP,
                             "%.200s: pickle protocol %d; save it again with torch.save's own protocol, 2",
                             m->opts->name, p[1]);
    for (;;) {
        m->op_at = m->at;
        rc = operand(m, 1, &p);
        if (rc)
            return rc;
        if (*p == OP_STOP)
            break;
        rc = step(m, *p);
        if (rc)
            return rc;
    }
    if (m->mark_count || m->depth != 1)
        return swn_pickle_fail(m, "ends with %zu values on the stack instead of one", m->depth);
    if (m->at != m->len)
        return swn_pickle_fail(m, "there are bytes behind the end of the pickle");
    *root = m->stack[0];
    return 0;
}

int swn_pickle_read(struct swn_bump_alloc *bump, const char *text, size_t len, const struct swn_pickle_opts *opts,
                    struct swn_pickle_value **root, char why[SWN_ERRMSG])
{
    struct swn_pickle_machine m = {.bump = bump, .opts = opts, .text = text, .len = len, .why = why};
    int rc = run(&m, root);
    free(m.stack);
    free(m.memo);
    free(m.marks);
    return rc;
}
