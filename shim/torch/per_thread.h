// What a module knows of each thread, made at its first use and freed when the thread ends. On the heap, and no
// thread-local itself: operators run in threads whose thread-locals are already gone. The destructors of keys come
// after those; an operator that runs in one of them makes it anew, and the next round of destructors frees that.
#ifndef SWN_SHIM_TORCH_PER_THREAD_H
#define SWN_SHIM_TORCH_PER_THREAD_H

#include <pthread.h>

template <class T> struct swn_per_thread {
    static inline thread_local T *mine = nullptr;

    static void gone(void *t)
    {
        mine = nullptr;
        delete static_cast<T *>(t);
    }

    static T &make()
    {
        static pthread_key_t key;
        static const bool has_key =
            !pthread_key_create(&key, gone); // else, or without memory for it, it is never freed
        mine = new T;
        if (has_key)
            pthread_setspecific(key, mine);
        return *mine;
    }

    static T &get()
    {
        return mine ? *mine : make();
    }
};

#endif
