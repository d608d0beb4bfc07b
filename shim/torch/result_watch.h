// Every result of every outermost operator, for `swapnetctl verify`.
#pragma once

#include "skeleton/abi/abi.h"

// swn_torch_backend.watch.
const char *swn_watch_begin(void (*result)(const char *op, const swn_result *result));
