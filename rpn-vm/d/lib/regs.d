/*
 * Indices of uregs[]: the registers that the program had when it last left ring 3, or has. The names are those of the DTrace
 * guide for x86; the numbers are those of RPN's registers. R_EAX and the like are the low 32 bits.
 */

inline int R_CS = 0x00;
inline int R_DS = 0x01;
inline int R_ES = 0x02;
inline int R_FS = 0x03;
inline int R_GS = 0x04;
inline int R_SS = 0x05;
inline int R_EAX = 0x06;
inline int R_EBX = 0x07;
inline int R_ECX = 0x08;
inline int R_EDX = 0x09;
inline int R_EDI = 0x0a;
inline int R_ESI = 0x0b;
inline int R_EFL = 0x0c;
inline int R_EIP = 0x0d;
inline int R_ESP = 0x0e;
inline int R_UESP = 0x0e;
inline int R_EBP = 0x0f;

inline int R_RAX = 0x80;
inline int R_RBX = 0x81;
inline int R_RCX = 0x82;
inline int R_RDX = 0x83;
inline int R_RDI = 0x84;
inline int R_RSI = 0x85;
inline int R_RFL = 0x86;
inline int R_RIP = 0x87;
inline int R_RSP = 0x88;
inline int R_RBP = 0x89;
inline int R_R8 = 0x8a;
inline int R_R9 = 0x8b;
inline int R_R10 = 0x8c;
inline int R_R11 = 0x8d;
inline int R_R12 = 0x8e;
inline int R_R13 = 0x8f;
inline int R_R14 = 0x90;
inline int R_R15 = 0x91;

inline int R_PC = sizeof (long) == 8 ? R_RIP : R_EIP;
inline int R_SP = sizeof (long) == 8 ? R_RSP : R_ESP;
inline int R_FP = sizeof (long) == 8 ? R_RBP : R_EBP;
inline int R_PS = sizeof (long) == 8 ? R_RFL : R_EFL;
inline int R_R0 = sizeof (long) == 8 ? R_RAX : R_EAX;
inline int R_R1 = sizeof (long) == 8 ? R_RDX : R_EDX;
