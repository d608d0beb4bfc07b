/* scheduler/http/http_infer.c - the body of an inference on its way into the buffer, and its answer out of it.
 *
 * A body goes into a slot that is taken before its first byte is read. A compressed one, or one of unknown length, has
 * a slot that grows, up to the limit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/http/http_internal.h"
#include "scheduler/oip/oip_answer.h"
#include "scheduler/oip/oip_classes.h"

#define FIRST_SLOT ((uint64_t)65536) /* of a body of unknown length */
/* Compressed bytes that are taken at once, and what deflate makes of them at most: 1032 times as many. */
#define PIECE ((size_t)1024)
#define PIECE_MOST (PIECE * 1040)
#define PACK_LEAST 1024 /* smaller answers are not worth compressing */

static struct swn_buffer *buffer_of(const struct swn_http_request *r)
{
    return swn_serving_buffer(r->http->serving);
}

/* In front of a body of raw data there is room for what parsing it may add. */
static uint64_t headroom(const struct swn_http_request *r)
{
    return r->json_bytes == 0 ? SWN_OIP_RAW_ROOM : 0;
}

static uint64_t slot_most(const struct swn_http_request *r)
{
    return r->http->options.body_most + headroom(r);
}

static int refuse_room(struct swn_http_request *r, int err)
{
    if (err == -EFBIG)
        return swn_oip_fail(&r->job.error, 413, "the request is larger than the server's buffer");
    return swn_oip_fail(&r->job.error, 503, "there is no room for the request now");
}

static int refuse_size(struct swn_http_request *r)
{
    return swn_oip_fail(&r->job.error, 413, "the body is larger than %llu bytes",
                        (unsigned long long)r->http->options.body_most);
}

/* One of the places for inferences, whose state no buffer bounds. */
static int take_place(struct swn_http_request *r)
{
    if (r->has_place)
        return 0;
    if (atomic_fetch_add(r->http->options.inferring, 1) >= r->http->options.inferences) {
        atomic_fetch_sub(r->http->options.inferring, 1);
        return swn_oip_fail(&r->job.error, 503, "there are too many requests");
    }
    r->has_place = 1;
    return 0;
}

void swn_http_infer_free(struct swn_http_request *r)
{
    swn_infer_free(buffer_of(r), r->job.infer);
    r->job.infer = NULL;
    swn_inflate_free(r->inflate);
    r->inflate = NULL;
    if (r->has_place)
        atomic_fetch_sub(r->http->options.inferring, 1);
    r->has_place = 0;
}

int swn_http_infer_begin(struct swn_http_request *r)
{
    const char *coding = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Encoding");
    enum swn_coding known = swn_coding_named(coding);
    uint64_t first = r->length == UINT64_MAX ? FIRST_SLOT : r->length + headroom(r);
    int rc;

    r->used = headroom(r);
    if (r->length != UINT64_MAX && r->length > r->http->options.body_most)
        return refuse_size(r);
    if (known == SWN_CODING_UNKNOWN)
        return swn_oip_fail(&r->job.error, 415, "Content-Encoding is not known: use gzip or deflate");
    if (known != SWN_CODING_IDENTITY) {
        if (take_place(r))
            return -EINVAL;
        r->inflate = swn_inflate_new(known);
        if (!r->inflate)
            return refuse_room(r, -ENOMEM);
    }
    if (r->inflate || first > FIRST_SLOT) /* a client that says much and sends nothing holds little */
        first = FIRST_SLOT < slot_most(r) ? FIRST_SLOT : slot_most(r);
    rc = swn_slot_take_for_request(buffer_of(r), first, &r->body);
    return rc ? refuse_room(r, rc) : 0;
}

/* Room for `more` bytes behind those that are there, or as much as the limit leaves. */
static int make_room(struct swn_http_request *r, uint64_t more)
{
    struct swn_slot *slot = &r->body;
    uint64_t most = slot_most(r), wanted = r->used + more, whole = r->length;
    int rc;

    if (wanted <= slot->bytes || slot->bytes >= most)
        return 0;
    if (wanted < 2 * slot->bytes)
        wanted = 2 * slot->bytes;
    if (whole != UINT64_MAX)
        whole += headroom(r);
    if (!r->inflate && wanted > whole && r->used + more <= whole)
        wanted = whole;
    rc = swn_slot_resize(buffer_of(r), slot, wanted < most ? wanted : most);
    return rc ? refuse_room(r, rc) : 0;
}

static int inflate_piece(struct swn_http_request *r, const char *bytes, size_t count)
{
    struct swn_slot *slot = &r->body;
    uint64_t most = slot_most(r);
    int rc = make_room(r, PIECE_MOST);

    if (rc)
        return rc;
    rc = swn_inflate_add(r->inflate, bytes, count, swn_buffer_at(buffer_of(r), slot->offset),
                         slot->bytes < most ? slot->bytes : most, &r->used);
    if (rc == -EMSGSIZE)
        return refuse_size(r);
    if (rc == -ENOMEM)
        return refuse_room(r, rc);
    return rc ? swn_oip_fail(&r->job.error, 400, "the body is not what Content-Encoding says") : 0;
}

int swn_http_infer_add(struct swn_http_request *r, const char *bytes, size_t count)
{
    struct swn_slot *slot = &r->body;
    int rc = 0;

    if (r->inflate) {
        for (size_t at = 0; at < count && rc == 0; at += PIECE)
            rc = inflate_piece(r, bytes + at, count - at < PIECE ? count - at : PIECE);
        return rc;
    }
    if (count > slot_most(r) - r->used)
        return refuse_size(r);
    rc = make_room(r, count);
    if (rc)
        return rc;
    memcpy((char *)swn_buffer_at(buffer_of(r), slot->offset) + r->used, bytes, count);
    r->used += count;
    return 0;
}

/* ---- the tensors ---- */

/* Inputs that are JSON get a slot, as the engine takes them; binary ones lie in the body as they are. */
static int write_inputs(struct swn_http_request *r)
{
    struct swn_infer *infer = r->job.infer;
    const struct swn_oip_request *q = &infer->request;
    uint64_t all = 0, has_binary = 0;
    int rc;

    for (unsigned i = 0; i < q->input_count; i++) {
        uint64_t bytes = (q->inputs[i].tensor.bytes + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1);
        infer->at[i] = infer->body.offset + q->inputs[i].at;
        has_binary |= !q->inputs[i].is_json;
        if (q->inputs[i].is_json && __builtin_add_overflow(all, bytes, &all))
            return refuse_room(r, -EFBIG);
    }
    if (all == 0)
        return 0;
    rc = swn_slot_take_for_request(buffer_of(r), all, &infer->inputs);
    if (rc)
        return refuse_room(r, rc);
    all = infer->inputs.offset;
    for (unsigned i = 0; i < q->input_count; i++) {
        const struct swn_oip_input *input = &q->inputs[i];
        if (!input->is_json)
            continue;
        infer->at[i] = all;
        if (swn_oip_tensor_write(q, i, swn_buffer_at(buffer_of(r), all), input->tensor.bytes, &r->job.error))
            return -EINVAL;
        all += (input->tensor.bytes + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1);
    }
    if (!has_binary)
        swn_slot_give(buffer_of(r), &infer->body);
    return 0;
}

int swn_http_infer_end(struct swn_http_request *r)
{
    const char *body = swn_buffer_at(buffer_of(r), r->body.offset);
    struct swn_infer *infer;

    if (r->inflate) {
        int rc = swn_inflate_end(r->inflate);
        swn_inflate_free(r->inflate);
        r->inflate = NULL;
        if (rc)
            return swn_oip_fail(&r->job.error, 400, "the compressed body ends too early");
    }
    r->job.item.arrived_ns = swn_now_ns();
    if (take_place(r))
        return -EINVAL;
    if (swn_slot_resize(buffer_of(r), &r->body, r->used)) /* the room for what might have come */
        return refuse_room(r, -ENOSPC);
    infer = r->job.infer = calloc(1, sizeof *infer);
    if (!infer)
        return refuse_room(r, -ENOMEM);
    infer->body = r->body;
    r->body = (struct swn_slot){0};
    if (r->json_bytes == 0) { /* its input is known to the serving thread */
        infer->is_raw = 1;
        infer->request.bytes = r->used - headroom(r);
        return 0;
    }
    if (r->json_bytes != UINT64_MAX && r->json_bytes > r->used)
        return swn_oip_fail(&r->job.error, 400, "Inference-Header-Content-Length is larger than the body");
    if (swn_oip_parse(body, r->used, r->json_bytes == UINT64_MAX ? r->used : r->json_bytes, &infer->request,
                      &r->job.error))
        return -EINVAL;
    return write_inputs(r);
}

/* ---- the answer ---- */

static void release(void *cls)
{
    swn_http_release(cls);
}

static struct MHD_Response *respond(struct swn_http_request *r, const struct swn_coding_part *parts, unsigned count)
{
    struct MHD_IoVec iov[SWN_WIRE_TENSORS + 1];
    struct MHD_Response *response;

    for (unsigned i = 0; i < count; i++)
        iov[i] = (struct MHD_IoVec){parts[i].at, parts[i].bytes};
    atomic_fetch_add(&r->holders, 1);
    response = MHD_create_response_from_iovec(iov, count, release, r);
    if (!response) {
        swn_http_release(r);
        swn_oip_fail(&r->job.error, 503, "out of memory");
    }
    return response;
}

/* All of it as one compressed part, where the client takes that and it is smaller. */
static enum swn_coding compress(struct swn_http_request *r, struct swn_coding_part *parts, unsigned *count,
                                uint64_t *bytes)
{
    const char *accept = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Accept-Encoding");
    enum swn_coding coding = accept ? swn_coding_accepted(accept) : SWN_CODING_IDENTITY;
    size_t n;

    if (coding == SWN_CODING_IDENTITY || coding == SWN_CODING_UNKNOWN || *bytes < PACK_LEAST ||
        swn_slot_take(buffer_of(r), *bytes, &r->packed))
        return SWN_CODING_IDENTITY;
    n = swn_deflate_parts(coding, parts, *count, swn_buffer_at(buffer_of(r), r->packed.offset), *bytes);
    if (n == 0) {
        swn_slot_give(buffer_of(r), &r->packed);
        return SWN_CODING_IDENTITY;
    }
    parts[0] = (struct swn_coding_part){swn_buffer_at(buffer_of(r), r->packed.offset), n};
    *count = 1;
    *bytes = n;
    return coding;
}

/* Outputs of which the request wants classes become texts in a slot. */
static int classify(struct swn_http_request *r, struct swn_oip_answer *answer)
{
    struct swn_infer *infer = r->job.infer;
    struct swn_kept_slot *kept;
    uint64_t rooms[SWN_WIRE_TENSORS], all = 0;
    int is_wanted = 0, rc;
    char *at;

    for (unsigned i = 0; i < answer->count; i++) {
        const struct swn_oip_answer_output *o = &answer->outputs[i];
        rooms[i] = 0;
        is_wanted |= o->classes != 0;
        if (o->classes &&
            swn_oip_classes_room(o->tensor, o->classes, infer->has_batch, infer->labels, &rooms[i], &r->job.error))
            return -EINVAL;
        rooms[i] = (rooms[i] + SWN_SLOT_ALIGN - 1) & ~(SWN_SLOT_ALIGN - 1);
        if (__builtin_add_overflow(all, rooms[i], &all))
            return swn_oip_fail(&r->job.error, 500, "the classes are larger than the buffer");
    }
    if (!is_wanted)
        return 0;
    kept = calloc(1, sizeof *kept);
    infer->classes = calloc(answer->count, sizeof *infer->classes);
    if (!kept || !infer->classes) {
        free(kept);
        return swn_oip_fail(&r->job.error, 503, "out of memory");
    }
    kept->next = infer->kept;
    infer->kept = kept;
    rc = all ? swn_slot_take(buffer_of(r), all, &kept->slot) : 0;
    if (rc)
        return swn_oip_fail(&r->job.error, rc == -EFBIG ? 500 : 503,
                            rc == -EFBIG ? "the classes are larger than the buffer"
                                         : "there is no room for the answer now");
    at = swn_buffer_at(buffer_of(r), kept->slot.offset);
    for (unsigned i = 0; i < answer->count; at += rooms[i++]) {
        struct swn_oip_answer_output *o = &answer->outputs[i];
        if (!o->classes)
            continue;
        if (swn_oip_classes_write(o->tensor, o->data, o->classes, infer->has_batch, infer->labels, at,
                                  &infer->classes[i]))
            return swn_oip_fail(&r->job.error, 503, "out of memory");
        o->tensor = &infer->classes[i];
        o->data = at;
    }
    return 0;
}

/* The answer's JSON into a slot. */
static int write_text(struct swn_http_request *r, const struct swn_oip_answer *answer, size_t *bytes)
{
    ssize_t n = swn_oip_answer_json(answer, NULL, 0, &r->job.error);
    int rc;

    if (n < 0)
        return -EINVAL;
    rc = swn_slot_take(buffer_of(r), (uint64_t)n, &r->text);
    if (rc)
        return swn_oip_fail(&r->job.error, 503, "there is no room for the answer now");
    *bytes = (size_t)n;
    n = swn_oip_answer_json(answer, swn_buffer_at(buffer_of(r), r->text.offset), *bytes, &r->job.error);
    if (n >= 0 && (size_t)n != *bytes)
        return swn_oip_fail(&r->job.error, 500, "the outputs changed while they were read");
    return n < 0 ? -EINVAL : 0;
}

static unsigned gather(struct swn_http_request *r, const struct swn_oip_answer *answer, size_t text_bytes,
                       struct swn_coding_part *parts, uint64_t *bytes)
{
    unsigned n = 0;

    parts[n++] = (struct swn_coding_part){swn_buffer_at(buffer_of(r), r->text.offset), text_bytes};
    *bytes = text_bytes;
    for (unsigned i = 0; i < answer->count; i++)
        if (answer->outputs[i].is_binary && answer->outputs[i].tensor->bytes) {
            parts[n++] = (struct swn_coding_part){answer->outputs[i].data, answer->outputs[i].tensor->bytes};
            *bytes += answer->outputs[i].tensor->bytes;
        }
    return n;
}

struct MHD_Response *swn_http_infer_answer(struct swn_http_request *r, uint64_t *bytes)
{
    struct swn_infer *infer = r->job.infer;
    struct swn_oip_answer answer;
    struct swn_coding_part parts[SWN_WIRE_TENSORS + 1];
    struct MHD_Response *response;
    enum swn_coding coding;
    char text[24];
    size_t text_bytes = 0;
    unsigned count;
    int has_binary;
    uint64_t wait_ns = infer->wait_ns;

    snprintf(text, sizeof text, "%lld", (long long)r->job.version);
    if (swn_oip_answer_select(&answer, &infer->request, r->job.name, text, infer->tensors, infer->output_count,
                              swn_buffer_at(buffer_of(r), 0), &r->job.error))
        return NULL;
    answer.skipped = infer->skipped;
    answer.bits = infer->may_differ ? SWN_OIP_BATCH : SWN_OIP_EXACT;
    if (classify(r, &answer))
        return NULL;
    if (write_text(r, &answer, &text_bytes))
        return NULL;
    count = gather(r, &answer, text_bytes, parts, bytes);
    coding = compress(r, parts, &count, bytes);
    response = respond(r, parts, count);
    if (!response)
        return NULL;
    has_binary = swn_oip_answer_has_binary(&answer);
    /* A client that takes its time for the answer holds no more than the answer. */
    if (coding == SWN_CODING_IDENTITY) {
        r->sent = infer->outputs;
        r->kept = infer->kept;
        infer->outputs = (struct swn_slot){0};
        infer->kept = NULL;
    }
    swn_http_infer_free(r);
    if (has_binary) {
        snprintf(text, sizeof text, "%zu", text_bytes);
        MHD_add_response_header(response, "Inference-Header-Content-Length", text);
        MHD_add_response_header(response, "Content-Type", "application/octet-stream");
    } else {
        MHD_add_response_header(response, "Content-Type", "application/json");
    }
    if (wait_ns) {
        snprintf(text, sizeof text, "%.3f", (double)wait_ns / 1e6);
        MHD_add_response_header(response, "Swapnet-Wait-Ms", text);
    }
    if (coding != SWN_CODING_IDENTITY)
        MHD_add_response_header(response, "Content-Encoding", swn_coding_name(coding));
    return response;
}
