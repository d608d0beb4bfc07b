/* shim/hooks/next_symbol.h - the next definitions of interposed functions. */
#ifndef SWN_SHIM_HOOKS_NEXT_SYMBOL_H
#define SWN_SHIM_HOOKS_NEXT_SYMBOL_H

/* The next definition of `name` in the search order, looked up once; NULL when there is none. For functions only. */
void *swn_real_lookup(const char *name, void **cache);

#define SWN_REAL(name, type)                                                                                           \
    static type real_##name(void)                                                                                      \
    {                                                                                                                  \
        static void *cache;                                                                                            \
        return (type)swn_real_lookup(#name, &cache);                                                                   \
    }

#endif
