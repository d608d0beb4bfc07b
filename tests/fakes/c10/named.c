/* A library of a PyTorch of which nothing matters but what it is called: one function, which says which one it is. */
__attribute__((visibility("default"))) int NAME(void);

int NAME(void)
{
    return NUMBER;
}
