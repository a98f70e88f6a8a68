// WHICH makes two different programs of it.
__attribute__((noipa)) int foo(int n) {
  return n + WHICH;
}

void _start(void) {
  foo(1);
  for (;;)
    ;
}
