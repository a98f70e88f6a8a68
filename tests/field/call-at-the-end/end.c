volatile int v;

__attribute__((noreturn, noipa)) void die(int x) {
  v = x;
  for (;;) __asm__ volatile("cli; hlt");
}

/* Ends with its call: `innocent` begins where the call would return. */
__attribute__((noipa)) void caller_of_die(int x) {
  die(x + 1);
}

__attribute__((noipa)) int innocent(int x) {
  return x * 3 + v;
}

void main64(void) {
  v = 7;
  caller_of_die(v);
  innocent(3);
}
