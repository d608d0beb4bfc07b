/* profiles/profile.h - device and model profiles: measurements as JSON files. docs/PROFILES.md has the schema.
 *
 * A device profile holds the coefficients of the delay model. A model profile holds a model's layers (SwapNet's table
 * 2, with measured times), and the coefficients fitted from them, if any. Files are hostile input: sizes are bounded,
 * every field is checked, unknown and repeated fields are refused.
 *
 * A profile owns everything it points to. Functions are thread-safe as long as no two use the same profile.
 */
#ifndef SWN_PROFILES_PROFILE_H
#define SWN_PROFILES_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "profiles/delay_model.h"
#include "profiles/least_squares.h"
#include "profiles/queue_depth.h"

#define SWN_PROFILE_WHY 512
#define SWN_PROFILE_LAYERS ((size_t)1 << 20)
#define SWN_PROFILE_SAMPLES ((size_t)1024) /* per layer and kind */
#define SWN_PROFILE_FILE ((size_t)256 << 20)

enum swn_profile_kind { SWN_PROFILE_DEVICE, SWN_PROFILE_MODEL };

/* Bits of `known`, `estimates` and `fitted`. */
enum {
    SWN_ALPHA = 1,
    SWN_BETA = 2,
    SWN_GAMMA = 4,
    SWN_ETA = 8,
};

/* references: how many the read took; 0: not counted, see swn_profile_fit. */
struct swn_profile_read {
    uint64_t bytes;
    double seconds;
    uint64_t references;
};

struct swn_profile_release {
    double seconds;
    uint64_t references;
};

struct swn_profile_layer {
    char *name;
    struct swn_layer l;
    double op_s;               /* the part of l.compute_s until its operator is done; below 0: not known */
    uint64_t activation_bytes; /* most nonweight bytes while it computes */
    uint64_t slice_bytes;      /* its operator can take it in slices of multiples of this; 0: only whole */
    struct swn_profile_read *reads;
    size_t read_count;
    struct swn_profile_release *releases;
    size_t release_count;
};

/* How well one of the three delays was fitted. */
struct swn_profile_fit {
    int rc; /* result of swn_fit; -ENODATA also when nothing was fitted */
    struct swn_fit fit;
};
enum { SWN_FIT_IN, SWN_FIT_EX, SWN_FIT_OUT, SWN_FITS };

struct swn_profile {
    enum swn_profile_kind kind;
    char *name, *source, *torch_version; /* source and torch_version may be NULL */
    uint64_t memory_bytes;               /* of the device; 0: not known */
    unsigned known;                      /* the known coefficients; the others are 0 */
    unsigned estimates;                  /* those that were estimated, not measured */
    struct swn_coefficients c;
    struct swn_profile_fit fit[SWN_FITS];
    struct swn_queue_depth queue; /* of a device; depth 0: not known */
    /* of a model */
    uint64_t other_bytes; /* most nonweight bytes at any one time, with weights too small to stream */
    uint64_t passes;
    double latency_s;      /* median time of a pass; below 0: not known */
    double busy_latency_s; /* the same while the disk reads all the time */
    double busy_alpha;     /* the disk's seconds per byte then; with the cost of reads where read_s is not known */
    double rest_alpha;     /* the same while the program waits for the disk */
    double read_s;         /* the disk's cost per read besides its bytes, while it reads all the time */
    double wait_s;     /* how much longer a read takes when no other is under way; measured while the disk reads, where
                          known */
    double watching_s; /* the part of latency_s for watching operators, which the library does not do where all weights
                          fit */
    struct swn_profile_layer *layers;
    size_t layer_count;
};

struct swn_profile *swn_profile_new(enum swn_profile_kind kind, const char *name); /* NULL: no memory */
void swn_profile_free(struct swn_profile *p);
/* Room for one more layer, zeroed but for a copy of the name, or NULL. The other layers move. */
struct swn_profile_layer *swn_profile_add(struct swn_profile *p, const char *name);

/* 0; -EINVAL with a text; -ENOMEM, -EFBIG or an -errno of the file, with a text. */
int swn_profile_parse(struct swn_profile **out, const char *text, size_t len, char why[SWN_PROFILE_WHY]);
int swn_profile_load(struct swn_profile **out, const char *path, char why[SWN_PROFILE_WHY]);
/* malloc'd text, or NULL. */
char *swn_profile_text(const struct swn_profile *p);
/* 0 or -errno. */
int swn_profile_save(const struct swn_profile *p, const char *path);

/* Fits the coefficients from the layers' measurements, into c, known and fit[]; those that cannot be fitted are left
 * out, with the reason in fit[].rc. Where references were not counted, a read of the whole layer counts as the layer's
 * references, and a read of a part as one. 0 or -ENOMEM. */
int swn_profile_fit(struct swn_profile *p);

/* Why the layers' measurements say little about a fitted coefficient (one bit), as the end of a sentence; NULL: no
 * doubt, or no memory to compute. Static. */
const char *swn_profile_doubt(const struct swn_profile *p, unsigned bit);

#endif
