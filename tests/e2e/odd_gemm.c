/* odd_gemm.c - a preload that stands for the math library's product of doubles: it sums up in another order when the
 * product is small, so that a part of one has other bits than the whole. For an untransposed left factor only. */
#include <stdlib.h>

#define SMALL 10000

void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha,
            const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc);

void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha,
            const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc)
{
    if ((*ta | 32) != 'n')
        abort();
    long across = (*tb | 32) == 'n' ? 1 : *ldb, down = (*tb | 32) == 'n' ? *ldb : 1;
    for (int j = 0; j < *n; j++) {
        double *to = c + (long)j * *ldc;
        for (int i = 0; i < *m; i++)
            to[i] = *beta == 0 ? 0 : to[i] * *beta;
        for (int step = 0; step < *k; step++) {
            int l = *m < SMALL ? *k - 1 - step : step;
            double factor = *alpha * b[l * across + j * down];
            for (int i = 0; i < *m; i++)
                to[i] += a[i + (long)l * *lda] * factor;
        }
    }
}
