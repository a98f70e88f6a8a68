//! What interposers and profiles may do with a running machine: read its state, and change what a handler may change.

use super::Core;
use crate::cpu::fault::Fault;
use crate::cpu::{StackShape, UserContext};
use crate::engine::{Env, Seg};
use crate::mmu::{Access, Paging, Translation, UserPages};
use crate::platform::Platform;
use crate::ram::Ram;
use iced_x86::Instruction;

/// Registers, time, and the guest's memory.
impl Core {
    /// The engine's CPU state.
    #[inline]
    pub fn env(&self) -> Env<'_> {
        *self.cpu.env
    }

    /// The registers that paging depends on.
    #[inline]
    pub fn paging(&self) -> Paging {
        self.cpu.paging()
    }

    /// EFLAGS with all flags materialised.
    #[inline]
    pub fn eflags(&self) -> u64 {
        self.cpu.eflags()
    }

    /// Guest RAM.
    #[inline]
    pub fn ram(&self) -> &Ram {
        &self.cpu.ram
    }

    /// Whether the machine is only looked at, as that of a dump is: it cannot run, and nothing can be written.
    pub fn is_still(&self) -> bool {
        self.cpu.ram.is_elsewhere()
    }

    /// Devices.
    #[inline]
    pub fn platform(&self) -> &Platform {
        &self.cpu.platform
    }

    /// Retired instructions. Inside a trap: those before the trapping instruction.
    #[inline]
    pub fn icount(&self) -> u64 {
        self.cpu.hot.clock.icount
    }

    /// Virtual time, ns: one per retired instruction, plus what HLT skipped.
    #[inline]
    pub fn virtual_ns(&self) -> u64 {
        self.cpu.hot.clock.now()
    }

    /// Lets virtual time pass without an instruction, as if the processor had been busy elsewhere. What becomes due in
    /// the meantime is due at the next boundary, where the engine stops.
    pub fn pass_time(&mut self, ns: u64) {
        self.cpu.hot.clock.skipped = self.cpu.hot.clock.skipped.saturating_add(ns);
        self.stop_at_boundary();
    }

    /// Time stamp counter: virtual ns plus what the guest has written to it.
    #[inline]
    pub fn tsc(&self) -> u64 {
        self.cpu.tsc()
    }

    /// Bits of the current code segment: 64, 32 or 16.
    #[inline]
    pub fn code_bits(&self) -> u32 {
        self.cpu.code_bits()
    }

    /// Linear address of the next instruction.
    #[inline]
    pub fn linear_ip(&self) -> u64 {
        self.cpu.wrap_linear(self.cpu.linear_ip())
    }

    /// Wraps an instruction pointer to the code size.
    #[inline]
    pub fn wrap_ip(&self, ip: u64) -> u64 {
        self.cpu.wrap_ip(ip)
    }

    /// Wraps a linear address to the address width of the mode.
    #[inline]
    pub fn wrap_linear(&self, va: u64) -> u64 {
        self.cpu.wrap_linear(va)
    }

    /// The current stack.
    #[inline]
    pub fn stack(&self) -> StackShape {
        self.cpu.stack()
    }

    /// Moves the stack pointer.
    #[inline]
    pub fn set_stack_pointer(&self, shape: StackShape, pointer: u64) {
        self.cpu.set_stack_pointer(shape, pointer);
    }

    /// A readable dump of the registers, one group a line.
    pub fn dump_registers(&self) -> String {
        self.cpu.dump_registers()
    }

    /// Decodes the data view at a linear address: what the guest itself put there.
    pub fn decode_original(&self, linear: u64) -> Option<Instruction> {
        self.cpu.decode_original(linear)
    }

    /// Translates with side effects, as the access of an instruction.
    ///
    /// # Errors
    /// #PF with CR2's value, or #GP(0) for a non-canonical address.
    #[inline]
    pub fn translate(&mut self, va: u64, access: Access, user: bool) -> Result<u64, Fault> {
        self.cpu.translate(va, access, user)
    }

    /// Loads an integer of `size` bytes (1, 2, 4, 8) with the current privilege, as an operand of the instruction at
    /// EIP.
    ///
    /// # Errors
    /// The fault to deliver to the guest.
    #[inline]
    pub fn load(&mut self, va: u64, size: usize) -> Result<u64, Fault> {
        if self.watches.any_data() {
            return self.cpu.load(va, size, &mut self.watches);
        }
        self.cpu.load_unreported(va, size)
    }

    /// Stores the low `size` bytes of `value` with the current privilege, as an operand of the instruction at EIP.
    ///
    /// # Errors
    /// The fault to deliver to the guest.
    #[inline]
    pub fn store(&mut self, va: u64, value: u64, size: usize) -> Result<(), Fault> {
        if self.watches.any_data() {
            return self.cpu.store(va, value, size, &mut self.watches);
        }
        self.cpu.store_unreported(va, value, size)
    }

    /// Translates without side effects, with supervisor rights to reads. `None`: not mapped.
    pub fn peek_translate(&self, va: u64, access: Access, user: bool) -> Option<Translation> {
        self.cpu.peek_translate(va, access, user)
    }

    /// NOFAULT read of linear memory in data view.
    ///
    /// # Errors
    /// The first address that cannot be read.
    #[inline]
    pub fn peek(&self, va: u64, to: &mut [u8]) -> Result<(), u64> {
        self.cpu.peek(va, to)
    }

    /// NOFAULT read of a word in data view: 8 bytes if `wide`, else 4.
    ///
    /// # Errors
    /// The first address that cannot be read.
    #[inline]
    pub fn peek_word(&self, va: u64, wide: bool) -> Result<u64, u64> {
        self.cpu.peek_word(va, wide)
    }

    /// NOFAULT write of linear memory: page permissions as for a supervisor with CR0.WP.
    ///
    /// # Errors
    /// The first address that cannot be written; nothing is written then.
    #[inline]
    pub fn poke(&mut self, va: u64, from: &[u8]) -> Result<(), u64> {
        self.cpu.poke(va, from)
    }

    /// Writes physical memory, as a store of the guest's would.
    pub fn write_physical(&mut self, paddr: u64, bytes: &[u8]) {
        self.cpu.write_phys(paddr, bytes);
    }

    /// Reads as much of linear memory as is mapped, up to the buffer's size; the number of bytes read.
    #[inline]
    pub fn peek_prefix(&self, va: u64, to: &mut [u8]) -> usize {
        self.cpu.peek_prefix(va, to)
    }

    /// Physical address that a fetch at linear `va` sees, without side effects. `None` in a slot: a slot is not guest
    /// memory, even where its address truncated to 32 bits is.
    pub fn code_paddr(&self, va: u64) -> Option<u64> {
        self.cpu.code_paddr(va)
    }

    /// The pages that the current process can read, at most `most` of 4 KiB each.
    pub fn user_pages(&self, most: usize) -> UserPages {
        self.cpu.user_pages(most)
    }
}

/// State that handlers read from the machine besides memory.
impl Core {
    /// CPUID of the guest's model: `[eax, ebx, ecx, edx]`.
    pub fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.cpu.cpuid(leaf, subleaf)
    }

    /// A model-specific register, without side effects; `None` when the model has no such register.
    pub fn peek_msr(&self, index: u32) -> Option<u64> {
        self.cpu.peek_msr(index)
    }

    /// Linear base of the segment that a selector names (`seg2lin`).
    pub fn selector_base(&self, selector: u16) -> Option<u64> {
        self.cpu.selector_base(selector)
    }

    /// Loads DS, ES, FS or GS for a handler; a selector that the CPU would refuse changes nothing.
    pub fn load_selector(&mut self, seg: Seg, selector: u16) {
        self.cpu.load_selector(seg, selector);
    }

    /// A port read by a handler, at the count of the hit.
    pub fn handler_port_read(&mut self, port: u16, size: u8) -> u32 {
        self.cpu.port_in(port, size)
    }

    /// A port write by a handler, at the count of the hit.
    pub fn handler_port_write(&mut self, port: u16, size: u8, value: u32) {
        self.cpu.port_out(port, size, value);
        self.stop_at_text();
    }

    /// Epoch, incremented on each exit from ring 3 and when a snapshot is restored. While it stays the same in ring 3,
    /// the current task and the kernel's data about it are unchanged.
    #[inline]
    pub fn user_exit_epoch(&self) -> u64 {
        self.cpu.user_exit_epoch
    }

    /// Has a task find the changed registers of `changed` when it is next in ring 3. `key` is what
    /// [`TrapInterposer::user_task`](crate::TrapInterposer::user_task) says of it, or else its
    /// [entry stack](Self::entry_stack). In ring 3 the CPU's own registers are to be written instead.
    pub fn set_user_context(&mut self, key: u64, changed: UserContext) {
        self.cpu.set_user_context(key, changed);
    }

    /// Whether anything waits for any task until it is next in ring 3.
    pub fn has_changed_user_contexts(&self) -> bool {
        self.cpu.user_writes
    }

    /// What waits for the task with this key until it is next in ring 3.
    pub fn changed_user_context(&self, key: u64) -> Option<&UserContext> {
        self.cpu.changed_user_context(key)
    }

    /// In ring 3 again: writes what handlers have changed of this task's context.
    #[inline(always)]
    pub(crate) fn write_user_registers(&mut self) {
        if self.cpu.user_writes && self.cpu.env.cpl() == 3 {
            self.write_changed_registers();
        }
    }

    #[cold]
    fn write_changed_registers(&mut self) {
        let task = self.with_interposer(|i, core| i.user_task(core)).flatten();
        self.cpu.write_user_registers(task.unwrap_or_else(|| self.cpu.entry_stack()));
    }

    /// Ring-0 stack pointer of the current TSS; 0 when there is none.
    pub fn entry_stack(&self) -> u64 {
        self.cpu.entry_stack()
    }

    /// The user context of the current task; `None` for kernel threads and early boot. In ring 3 the CPU's own
    /// registers are the user context, and this is not asked.
    pub fn user_context(&self) -> Option<&UserContext> {
        self.cpu.user_context()
    }

    /// Calls `look` with the state after the displaced instruction, which has just been emulated, has retired.
    pub fn as_retired(&mut self, look: impl FnOnce(&mut Self)) {
        self.cpu.hot.clock.icount += 1;
        look(self);
        self.cpu.hot.clock.icount -= 1;
    }

    /// Writes guest RAM at a physical address, as a device would; false, with nothing written, where there is none.
    pub fn write_ram(&mut self, paddr: u64, bytes: &[u8]) -> bool {
        let inside = !self.cpu.ram.is_elsewhere() && self.cpu.ram.contains(paddr, bytes.len() as u64);
        if inside {
            self.cpu.write_phys(paddr, bytes);
        }
        inside
    }
}
