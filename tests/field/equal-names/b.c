__attribute__((noipa)) static int helper(int n) {
  return n * 100;
}

__attribute__((noipa)) int two(int n) {
  return helper(n) + 1;
}
