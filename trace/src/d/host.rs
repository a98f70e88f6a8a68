//! What the output of a program does on this host: its files and commands.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::consumer::Consumer;
use super::field::Field;
use super::format::Format;
use super::record::Value;
use super::values::ShowSymbols;

impl Consumer {
    pub(super) fn write(&mut self, text: &[u8], out: &mut dyn Write) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(text),
            None => out.write_all(text),
        }
    }

    pub(super) fn freopen(
        &mut self,
        format: &Format,
        values: (&[Field], &[Value]),
        symbols: ShowSymbols<'_>,
    ) {
        let mut name = Vec::new();
        self.formatted(format, values, symbols, &mut name);
        let name = String::from_utf8_lossy(&name).into_owned();
        if name.is_empty() {
            self.file = None;
            return;
        }
        match std::fs::File::create(&name) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.complaints.push(format!("failed to freopen \"{name}\": {error}")),
        }
    }

    /// Runs a command of `system()` to its end; its output.
    pub(super) fn system(
        &mut self,
        format: &Format,
        values: (&[Field], &[Value]),
        symbols: ShowSymbols<'_>,
    ) -> Vec<u8> {
        let mut command = Vec::new();
        self.formatted(format, values, symbols, &mut command);
        let command = String::from_utf8_lossy(&command).into_owned();
        let ran = Command::new("/bin/sh")
            .args(["-c", &command])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output();
        match ran {
            Ok(output) => output.stdout,
            Err(error) => {
                self.complaints.push(format!("failed to run \"{command}\": {error}"));
                Vec::new()
            }
        }
    }
}
