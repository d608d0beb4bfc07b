// What the library does for the torch backend.
#ifndef SWN_SHIM_TORCH_SERVICES_H
#define SWN_SHIM_TORCH_SERVICES_H

#include "skeleton/abi/abi.h"

// Set when the library attaches the backend, before it calls anything else of it.
extern const swn_runtime_services *swn_services;

#endif
