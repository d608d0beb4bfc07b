// In place of `catch (...)` where that goes on: a thread that is cancelled, or calls pthread_exit (Python's daemon
// threads do), unwinds by something that looks like an exception, and whoever keeps that ends the process.
#ifndef SWN_SHIM_TORCH_CATCH_ALL_H
#define SWN_SHIM_TORCH_CATCH_ALL_H

#include <cxxabi.h>

#define SWN_CATCH_ALL                                                                                                  \
    catch (abi::__forced_unwind &)                                                                                     \
    {                                                                                                                  \
        throw;                                                                                                         \
    }                                                                                                                  \
    catch (...)

#endif
