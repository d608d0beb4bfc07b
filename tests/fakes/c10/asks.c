/* Wants both libraries of a PyTorch (named.c), by the name that torch backends ask for them with. */
int c10_number(void);
int torch_cpu_number(void);
__attribute__((visibility("default"))) int numbers(void);

int numbers(void)
{
    return 10 * c10_number() + torch_cpu_number();
}
