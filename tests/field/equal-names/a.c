int two(int n);

__attribute__((noipa)) static int helper(int n) {
  return n + 1;
}

__attribute__((noipa)) int one(int n) {
  return helper(n) + 1;
}

void main64(void) {
  volatile int s = 0;
  for (int i = 0; i < 3; i++) s += one(i);
  for (int i = 0; i < 5; i++) s += two(i);
}
