/* replay.c - makes calls of the operations of api/kernels.h again, from a list.
 *
 * A forward pass of one token makes the same calls as that of the token before it: only positions
 * and the contents of the buffers differ.  A small model makes some 500 of them in 2 ms, of which
 * finding the arguments anew, or only calling from Python, would cost a fifth. */
#include "api/formats.h"
#include "api/kernels.h"

static void make(const operation *p, int32_t pos)
{
    switch (p->kind) {
    case CALL_EMBED:
        embed(p->embed.y, p->embed.type, p->embed.w, p->embed.tokens, p->embed.n_tok, p->embed.n,
              p->embed.scale);
        break;
    case CALL_QUANTIZE_Q8:
        quantize_q8(p->quantize_q8.q, p->quantize_q8.d, p->quantize_q8.s, p->quantize_q8.x,
                    p->quantize_q8.n_tok, p->quantize_q8.n);
        break;
    case CALL_QUANTIZE_Q8_K:
        quantize_q8_k(p->quantize_q8_k.q, p->quantize_q8_k.d, p->quantize_q8_k.sums,
                      p->quantize_q8_k.x, p->quantize_q8_k.n_tok, p->quantize_q8_k.n);
        break;
    case CALL_SPLIT_BF16:
        split_bf16(p->split_bf16.terms, p->split_bf16.x, p->split_bf16.n_tok, p->split_bf16.n);
        break;
    case CALL_MATMULS: matmuls(p->matmuls.p, p->matmuls.n_product); break;
    case CALL_RMSNORM:
        rmsnorm(p->rmsnorm.y, p->rmsnorm.x, p->rmsnorm.w, p->rmsnorm.n_row, p->rmsnorm.n,
                p->rmsnorm.eps);
        break;
    case CALL_ROPE:
        rope(p->rope.x, p->rope.cs, p->rope.n_tok, p->rope.n_head, p->rope.head_dim, p->rope.n_pair,
             p->rope.half);
        break;
    case CALL_CACHE_STORE:
        cache_store((uint8_t *)p->cache_store.y + pos * p->cache_store.row_bytes,
                    p->cache_store.type, p->cache_store.x, p->cache_store.n);
        break;
    case CALL_ATTENTION:
        attention(p->attention.o, p->attention.q, p->attention.type, p->attention.k, p->attention.v,
                  p->attention.scores, p->attention.n_tok, pos, p->attention.n_head,
                  p->attention.n_head_kv, p->attention.head_dim, p->attention.window,
                  p->attention.scale, p->attention.cap);
        break;
    case CALL_SILU_MUL: silu_mul(p->pair.y, p->pair.x, p->pair.n); break;
    case CALL_GELU_MUL: gelu_mul(p->pair.y, p->pair.x, p->pair.n); break;
    case CALL_ADD: add(p->pair.y, p->pair.x, p->pair.n); break;
    case CALL_ADD_BIAS:
        add_bias(p->add_bias.x, p->add_bias.b, p->add_bias.n_tok, p->add_bias.n);
        break;
    case CALL_SCALE: scale(p->scale.x, p->scale.n, p->scale.factor); break;
    case CALL_SCALE_EACH:
        scale_each(p->scale_each.x, p->scale_each.factor, p->scale_each.n_tok, p->scale_each.n);
        break;
    case CALL_TAKE_COLUMNS:
        take_columns(p->take_columns.y, p->take_columns.x, p->take_columns.n_tok, p->take_columns.n,
                     p->take_columns.n_x);
        break;
    case CALL_MUL: mul(p->pair.y, p->pair.x, p->pair.n); break;
    case CALL_SIGMOID_MUL: sigmoid_mul(p->pair.y, p->pair.x, p->pair.n); break;
    case CALL_CAUSAL_CONV:
        causal_conv(p->causal_conv.y, p->causal_conv.x, p->causal_conv.w, p->causal_conv.state,
                    p->causal_conv.n_tok, p->causal_conv.n, p->causal_conv.n_x,
                    p->causal_conv.n_tap, p->causal_conv.silu);
        break;
    case CALL_DELTA_GATES:
        delta_gates(p->delta_gates.decay, p->delta_gates.beta, p->delta_gates.x, p->delta_gates.a,
                    p->delta_gates.dt, p->delta_gates.n_tok, p->delta_gates.n_head);
        break;
    case CALL_DELTA_NET:
        delta_net(p->delta_net.o, p->delta_net.q, p->delta_net.k, p->delta_net.v,
                  p->delta_net.decay, p->delta_net.beta, p->delta_net.state, p->delta_net.n_tok,
                  p->delta_net.n_head_k, p->delta_net.n_head, p->delta_net.dim);
        break;
    }
}

void replay(const operation *p, int64_t n, int32_t pos)
{
    for (int64_t i = 0; i < n; i++)
        make(p + i, pos);
}
