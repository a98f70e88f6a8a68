//! The host's side of the guest's serial ports, where records can be inserted between the bytes that the guest sends.
//!
//! DProbes wrote its records to a port itself, from its trap handler. Here the guest does not send them, so its port,
//! its time and its state are unaffected. The output is the same: a record comes after every byte that the guest had
//! sent when the record was committed, and before every later byte. Bytes are put out as they are, and line ends of
//! records are `\n` alone.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use trapline_emu::{SentByte, SerialPort};
use trapline_trace::{Destination, Entry, Event};

use crate::failure::Failure;
use crate::outlet::Outlet;

/// One port's wire.
pub struct Wire<'a> {
    /// Its destination.
    out: Outlet<'a>,
    /// Bytes that the guest has sent and that are not written yet, with their instruction counts.
    pending: VecDeque<(u64, u8)>,
}

impl Wire<'_> {
    /// Writes the bytes sent up to this count.
    fn up_to(&mut self, icount: u64) -> io::Result<()> {
        let due = self.pending.iter().take_while(|(at, _)| *at <= icount).count();
        let bytes: Vec<u8> = self.pending.drain(..due).map(|(_, byte)| byte).collect();
        if bytes.is_empty() { Ok(()) } else { self.out.put(&bytes) }
    }
}

/// Both ports' wires.
#[derive(Clone)]
pub struct Wires<'a> {
    com1: Rc<RefCell<Wire<'a>>>,
    com2: Rc<RefCell<Wire<'a>>>,
}

impl<'a> Wires<'a> {
    /// Wires to these outlets.
    pub fn new(com1: Outlet<'a>, com2: Outlet<'a>) -> Self {
        let wire = |out| Rc::new(RefCell::new(Wire { out, pending: VecDeque::new() }));
        Self { com1: wire(com1), com2: wire(com2) }
    }

    fn wire(&self, port: SerialPort) -> &Rc<RefCell<Wire<'a>>> {
        match port {
            SerialPort::Com1 => &self.com1,
            SerialPort::Com2 => &self.com2,
        }
    }

    /// Takes bytes that the guest has sent.
    pub fn sent(&self, bytes: &[SentByte]) {
        for sent in bytes {
            self.wire(sent.port).borrow_mut().pending.push_back((sent.icount, sent.byte));
        }
    }

    /// Writes all bytes sent so far.
    ///
    /// # Errors
    /// A destination cannot be written.
    pub fn pass_on(&self) -> Result<(), Failure> {
        for wire in [&self.com1, &self.com2] {
            let mut wire = wire.borrow_mut();
            wire.up_to(u64::MAX).map_err(|error| Failure::writing(wire.out.path(), error))?;
        }
        Ok(())
    }

    /// A log destination that inserts logged data into the output of a port.
    pub fn destination(&self, port: SerialPort) -> SerialDestination<'a> {
        SerialDestination(Rc::clone(self.wire(port)))
    }
}

/// A serial port as a log destination.
pub struct SerialDestination<'a>(Rc<RefCell<Wire<'a>>>);

impl Destination for SerialDestination<'_> {
    fn create(&mut self, _: &Event) -> io::Result<()> {
        Ok(())
    }

    fn log(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let mut wire = self.0.borrow_mut();
        // An entry without an instruction count is written now.
        wire.up_to(entry.icount.unwrap_or(u64::MAX))?;
        wire.out.put(entry.data)
    }

    fn destroy(&mut self) -> io::Result<()> {
        let mut wire = self.0.borrow_mut();
        wire.up_to(u64::MAX)?;
        wire.out.put(b"")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(Clone, Default)]
    struct Out(Rc<RefCell<Vec<u8>>>);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn records_stand_between_what_was_sent_before_and_after_them_on_each_port() {
        let (one, two) = (Out::default(), Out::default());
        let console = |out: &Out| Outlet::Writer(Box::new(out.clone()), None);
        let wires = Wires::new(console(&one), console(&two));
        let sent = |port, icount, byte| SentByte { icount, port, byte };
        wires.sent(&[
            sent(SerialPort::Com1, 5, b'a'),
            sent(SerialPort::Com2, 5, b'x'),
            sent(SerialPort::Com1, 7, b'b'),
            sent(SerialPort::Com2, 9, b'y'),
        ]);
        let mut on_two = wires.destination(SerialPort::Com2);
        on_two.log(&Entry { icount: Some(4), data: b"<4>" }).unwrap();
        on_two.log(&Entry { icount: Some(5), data: b"<5>" }).unwrap();
        let mut on_one = wires.destination(SerialPort::Com1);
        on_one.log(&Entry { icount: Some(6), data: b"<6>" }).unwrap();
        on_one.log(&Entry { icount: None, data: b"<now>" }).unwrap();
        wires.pass_on().unwrap();
        assert_eq!(one.0.borrow().as_slice(), b"a<6>b<now>");
        assert_eq!(two.0.borrow().as_slice(), b"<4>x<5>y");
    }
}
