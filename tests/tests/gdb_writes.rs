//! Registers that gdb writes: the guest's own instructions read them, and the run repeats what was written.

use crate::gdb::{gdb, told};

/// Functions for scripts that execute instructions of their own.
const EXECUTE: &str = r#"
python
def word(at, size):
    return int.from_bytes(gdb.selected_inferior().read_memory(at, size).tobytes(), 'little')
def refused(command):
    try: quiet(command)
    except gdb.error as error: return str(error)
    return 'written'
end
"#;

#[test]
fn the_guest_reads_the_registers_that_gdb_has_written() {
    let out = gdb(
        "embedded:x86_64 --mem 32M",
        &format!(
            r#"{EXECUTE}
python
# Before paging, the kernel's code can be written.
program = [
    ('0f1118', 'movups %xmm3, (%rax)'), ('0f1118', 'movups %xmm3, (%rax)'), ('0fae18', 'stmxcsr (%rax)'), ('dbe3', 'fninit'),
    ('d938', 'fnstcw (%rax)'), ('dd18', 'fstpl (%rax)'), ('64488b0c2500000000', 'mov %fs:0, %rcx'),
    ('65488b0c2500000000', 'mov %gs:0, %rcx'), ('0f20d1', 'mov %cr2, %rcx'), ('0f20d9', 'mov %cr3, %rcx'),
    ('0f1118', 'movups %xmm3, (%rax)')]
code = bytes.fromhex(''.join(code for code, _ in program))
gdb.selected_inferior().write_memory(value('(long)&do_fork') & 0x7fffffff, code)
names = iter(program)
def execute(text):
    assert next(names)[1] == text
    quiet('stepi')
end
break *do_fork
continue
delete
python
there = value('$rsp') - 256
quiet('set $rax = %d' % there)
quiet('set $cr0 = $cr0 & ~0xc')
quiet('set $cr4 = $cr4 | 0x600')
quiet('set $xmm3.v2_int64[0] = 0x0011223344556677')
quiet('set $xmm3.v2_int64[1] = 0x0123456789abcdef')
execute('movups %xmm3, (%rax)')
print('xmm', hex(word(there, 16)))
quiet('set $xmm3.v4_float[1] = 1.5')
execute('movups %xmm3, (%rax)')
print('float', hex(word(there, 16)))
quiet('set $mxcsr = 0x7f80')
execute('stmxcsr (%rax)')
print('mxcsr', hex(word(there, 4)))
execute('fninit')
quiet('set $fctrl = 0xf7f')
execute('fnstcw (%rax)')
print('fctrl', hex(word(there, 2)))
quiet('set $ftag = 0x3fff')
quiet('set $fstat = 0x3800')
quiet('set $st0 = 2.25')
print('st', gdb.parse_and_eval('$st0'), hex(value('$ftag')), hex(value('$fstat')))
execute('fstpl (%rax)')
print('popped', hex(word(there, 8)), hex(value('$fstat')))
quiet('set $fs_base = %d' % there)
quiet('set var *(long*)%d = 0x1122334455667788' % there)
execute('mov %fs:0, %rcx')
print('fs', hex(value('$rcx')))
quiet('set $gs_base = %d' % (there + 1))
execute('mov %gs:0, %rcx')
print('gs', hex(value('$rcx') & 0xffffffffffffff))
quiet('set $cr2 = 0xfeedbeef')
execute('mov %cr2, %rcx')
print('cr2', hex(value('$rcx')))
quiet('set $cr3 = $cr3 | 0x18')
execute('mov %cr3, %rcx')
print('cr3', value('$rcx') == value('$cr3') and value('$rcx') & 0x18 == 0x18)
end
python
for what, setting in [('mode', '$cr0 = $cr0 & ~1'), ('paging', '$cr0 = $cr0 & 0x7fffffff'), ('pae', '$cr4 = $cr4 & ~0x20'),
        ('reserved', '$cr4 = $cr4 | 0x10000000'), ('through', '$cr0 = $cr0 | 0x20000000'), ('long', '$efer = $efer & ~0x100'),
        ('address', '$fs_base = 0x8000000000000000'), ('wide', '$mxcsr = 0x10000'), ('selector', '$gs = 8'),
        ('flag', '$eflags = $eflags ^ 0x200'), ('space', '$cr3 = 0x4000000000000000')]:
    before = registers(['cr0', 'cr4', 'efer', 'fs_base', 'mxcsr', 'gs', 'cr3', 'eflags'])
    print(what, refused('set ' + setting))
    quiet('maintenance flush register-cache')
    assert before == registers(['cr0', 'cr4', 'efer', 'fs_base', 'mxcsr', 'gs', 'cr3', 'eflags']), what
# No x87 and SSE without its flags: the next instruction is an exception.
quiet('set $cr0 = $cr0 | 8')
execute('movups %xmm3, (%rax)')
print('unavailable', symbol())
end
"#
        ),
    );
    let what = ["xmm", "float", "mxcsr", "fctrl", "popped", "fs", "gs", "cr2", "cr3"];
    let expected = [
        "0x123456789abcdef0011223344556677",
        "0x123456789abcdef3fc0000044556677",
        "0x7f80",
        "0xf7f",
        "0x4002000000000000 0x0",
        "0x1122334455667788",
        "0x11223344556677",
        "0xfeedbeef",
        "True",
    ];
    assert_eq!(what.map(|name| told(&out, name)), expected, "{out}");
    assert_eq!(told(&out, "st"), "2.25 0x3fff 0x3800", "{out}");
    for (name, why) in [
        ("mode", "register cr0 cannot be written: a bit would change the mode of the processor"),
        ("paging", "register cr0 cannot be written: a bit would change the mode of the processor"),
        ("pae", "register cr4 cannot be written: a bit would change the mode of the processor"),
        ("reserved", "register cr4 cannot be written: the processor refuses this value"),
        ("through", "register cr0 cannot be written: the processor refuses this value"),
        ("long", "register efer cannot be written: a bit would change the mode of the processor"),
        ("address", "register fs_base cannot be written: the processor refuses this value"),
        ("wide", "register mxcsr cannot be written: the processor refuses this value"),
        ("selector", "gs cannot be written"),
        ("flag", "a system flag of eflags cannot be written"),
        ("space", "register cr3 cannot be written: the processor refuses this value"),
    ] {
        assert!(told(&out, name).contains(why), "{name}: {out}");
    }
    assert_eq!(told(&out, "unavailable"), "stub_7", "{out}");
}

#[test]
fn a_run_repeats_the_registers_that_gdb_has_written() {
    let out = gdb(
        "embedded:ia32",
        &format!(
            r#"{EXECUTE}
break *do_fork
continue
delete
python
def icount(): return int(monitor('info').split()[1])
here = icount()
plain = monitor('digest')
quiet('set $xmm7.v2_int64[1] = 0xabcdef')
quiet('set $st3 = -0.5')
quiet('set $cr2 = 0x1234')
print('other', monitor('digest') != plain)
quiet('stepi 50')
far = monitor('digest')
quiet('reverse-stepi 50')
print('here', icount() == here, value('$xmm7.v2_int64[1]') == 0xabcdef, gdb.parse_and_eval('$st3') == -0.5, hex(value('$cr2')))
quiet('reverse-stepi')
print('before', value('$xmm7.v2_int64[1]') == 0xabcdef, value('$cr2') == 0x1234)
quiet('stepi'); quiet('stepi 50')
print('far', monitor('digest') == far, value('$xmm7.v2_int64[1]') == 0xabcdef)
print('base', refused('set $fs_base = 0'), refused('set $fs_base = 4096'))
print('efer', refused('set $efer = 1'))
end
"#
        ),
    );
    assert_eq!((told(&out, "other"), told(&out, "far")), ("True", "True True"), "{out}");
    assert_eq!(told(&out, "here"), "True True True 0x1234", "{out}");
    assert_eq!(told(&out, "before"), "False False", "{out}");
    assert!(
        told(&out, "base").contains("fs_base cannot be written: this processor does not have it"),
        "{out}"
    );
    assert!(told(&out, "efer").contains("efer cannot be written: this processor does not have it"), "{out}");
}
