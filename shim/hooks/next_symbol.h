/* shim/hooks/next_symbol.h - the functions our hooks stand in front of, and the library that a function lies in.
 *
 * The loader holds its lock while it runs the constructor of a library. A constructor may wait for a thread that it has
 * started, and that thread may call any hook: a look-up there would wait for the constructor, for ever. So our own
 * constructors look everything up. Hooks that are called before these have run (by libraries that come with the
 * program, when no lock is held) look up what they need themselves.
 */
#ifndef SWN_SHIM_HOOKS_NEXT_SYMBOL_H
#define SWN_SHIM_HOOKS_NEXT_SYMBOL_H

struct swn_next_symbol {
    void *found;
    int asked;
};

/* The next definition of `name` in the search order, looked up once; NULL when there is none. Only functions are asked
 * for. */
void *swn_next_symbol(const char *name, struct swn_next_symbol *cache);

#define SWN_NEXT(name, type)                                                                                           \
    static type next_##name(void)                                                                                      \
    {                                                                                                                  \
        static struct swn_next_symbol cache;                                                                           \
        return (type)swn_next_symbol(#name, &cache);                                                                   \
    }                                                                                                                  \
    __attribute__((constructor)) static void look_up_##name(void)                                                      \
    {                                                                                                                  \
        (void)next_##name();                                                                                           \
    }

/* The file name of the library that the code at `p` lies in, "" where the loader knows none. It takes no lock that the
 * loader holds while a constructor runs. */
const char *swn_library_of(const void *p);

#endif
