/* Calls the library of small-dense.yaml, Y[T, 512] = relu(X[T, 256] · W[512, 256]ᵀ + bias): call LIBRARY LAUNCHER T */
#include "small_dense.h"

#include <stdio.h>
#include <stdlib.h>

static float *filled(int64_t count, float value) {
  float *data = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
  for (int64_t i = 0; i < count; ++i) data[i] = value;
  return data;
}

int main(int count, char **words) {
  char why[512];
  small_dense_library library;
  int64_t t = count > 3 ? atoll(words[3]) : 1;
  float *weight = filled(512 * 256, 0.25f), *packed = filled(small_dense_packed_W(), 0.0f);
  float *x = filled(t * 256, 0.5f), *bias = filled(512, -1.0f), *y = filled(t * 512, 0.0f);
  if (count < 4 || small_dense_load(&library, words[1], words[2], 2) ||
      small_dense_pack_W(&library, weight, packed) || small_dense_run(&library, x, packed, bias, y, t)) {
    fprintf(stderr, "%s\n", dietcode_error(why, sizeof why));
    return 1;
  }
  printf("category %lld, Y[0, 0] = %g, Y[T-1, 511] = %g\n", (long long)small_dense_select(&library, t), y[0], y[t * 512 - 1]);
  small_dense_free(&library);
}
