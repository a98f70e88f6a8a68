//! PPDF files for tests: a program with every feature, and files with changes.

#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses its part")]

use trapline_rpn::ppdf::write;
use trapline_rpn::{Program, parse};

/// Every kind of statement, operand and expression.
pub const EVERYTHING: &str = "\
name = \"/lib/Mod+1\"
modtype = kernel
vars = 3
gvars = 2
major = 7
id = 0x12345678
logmax = 512
jmpmax = 0xffffffff
excpt_mask = 0xfff
excpt_log = 77
logonfault = yes
groupdef = process \"two words\"
typedef = enter leave
proc Log_it
push r, eip
log 1
endproc
proc unused
endproc
offset = do_fork + 0x10 - 3
opcode = 0x55
minor = 1
ignore = 2
maxhits = 3
group = Process
type = leave
again:
push 10
Back: inc lv, 2
loop again
jz back
call LOG_IT
push -1
push nr_free_pages - (base - 4) + \"eax\"
push sbp, -3
pop gv, 1
rol 255
log 65535
exit 4294967295
address = table
opcode = 0
logonfault = no
excpt_mask = 0
push u, xmm7
push pid
push procid
push task
push arg, 7
push ret
address = low:low + 3
opcode = 0xff
group = \"two words\"
push 18446744073709551615
";

/// The program with every feature.
pub fn everything() -> Program {
    parse("everything.rpn", EVERYTHING).unwrap()
}

/// Its file.
pub fn everything_built() -> Vec<u8> {
    write(&everything(), None).unwrap()
}

/// The table of zlib's CRC-32, by definition.
const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ CRC[usize::from(crc as u8 ^ byte)])
}

/// Corrects length and checksum, if there is room for them.
pub fn fixed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() < 20 {
        return bytes;
    }
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let end = bytes.len() - 4;
    let checksum = crc32(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Where a section's content begins and ends.
pub fn section(bytes: &[u8], tag: &str) -> (usize, usize) {
    let mut at = 16;
    loop {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        if &bytes[at..at + 4] == tag.as_bytes() {
            return (at + 8, at + 8 + length);
        }
        at += 8 + length;
    }
}
