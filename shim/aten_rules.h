// Which arguments of which operators may be lent a pool pointer: those that the kernel is known to read, not to keep
// and not to return. One letter per argument, the last one repeated: w a weight, i another tensor that is only read, r
// one of which single rows are looked up (by asking for them, see aten_rows.h, or at its own address), - anything else
// (the argument is used at its own address). "m": metadata only, no byte is touched. Operators that are not listed get
// '-' for all.
//
// Not here on purpose: batch_norm and native_batch_norm write running statistics without saying so in their schema.
#ifndef SWN_ATEN_RULES_H
#define SWN_ATEN_RULES_H

struct swn_rule {
    const char *name, *uses;
};

// nullptr when the operator is not listed.
const swn_rule *swn_rule_find(const char *name);

#endif
