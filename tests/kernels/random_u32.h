/* random_u32.h - pseudo-random numbers of the C test programs: the lower 32 bits of SplitMix64
 * (Steele, Lea & Flood 2014), seed 1; lib/sluice/generate/sampler.py uses the same generator. */
#include <stdint.h>

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z ^ z >> 31);
}
