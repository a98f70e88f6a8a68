/* A program whose function has the name that the command line gives: programs of equal bytes that differ in their
 * symbols only. It needs no library. */
volatile unsigned long n;

__attribute__((noipa)) void FUNCTION(void) {
  for (unsigned k = 0; k < 300000; k++) n++;
}

__attribute__((noipa)) int program(void) {
  FUNCTION();
  return 0;
}

__attribute__((force_align_arg_pointer)) void _start(void) {
  long code = program();
  for (;;) __asm__ volatile("syscall" : : "a"(60), "D"(code) : "rcx", "r11", "memory");
}
