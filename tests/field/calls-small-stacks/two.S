/* Two stacks of 512 bytes, one after the other. `work` is called on the lower one, and within that call on the higher one. */
.text
.globl main32
main32:
  mov %esp, saved
  mov $low_top, %esp
  push $1
  call work
  mov saved, %esp
  ret
.globl work
.type work, @function
work:
  push %ebp
  mov %esp, %ebp
  cmpl $1, 8(%ebp)
  jne 1f
  mov %esp, other
  mov $high_top, %esp
  push $2
  call work
  mov other, %esp
1:
  mov 8(%ebp), %eax
  pop %ebp
  ret
.size work, .-work
.data
saved: .long 0
other: .long 0
.align 2048
.skip 512
low_top:
.skip 512
high_top: .long 0
