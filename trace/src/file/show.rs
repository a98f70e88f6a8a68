//! A trace file shown to a sink, as the run itself was.

use std::io::{self, Read};

use super::error::TraceFileError;
use super::names::FileNames;
use super::read::{Piece, TraceReader};
use crate::sink::{End, Sink};

/// Why a trace file was not shown to its end.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The file is damaged. The sink has everything that precedes the damage.
    #[error(transparent)]
    File(#[from] TraceFileError),
    /// The sink cannot write.
    #[error(transparent)]
    Sink(io::Error),
}

impl<R: Read> TraceReader<R> {
    /// Shows all pieces to a sink. `at_end` may change the end record before the sink receives it.
    ///
    /// # Errors
    /// The file is damaged, or the sink cannot write.
    pub fn show(&mut self, sink: &mut dyn Sink, mut at_end: impl FnMut(&mut End)) -> Result<(), ShowError> {
        let mut names = FileNames::default();
        while let Some(piece) = self.next_piece()? {
            let shown = match piece {
                Piece::Begin(run) => sink.begin(&run),
                Piece::Name(name) => {
                    names.learn(name);
                    Ok(())
                }
                Piece::Record(record) => sink.record(&record.view(), &names),
                Piece::Reply(reply) => sink.reply(&reply),
                Piece::D(shown) => sink.d(&shown),
                Piece::End(mut end) => {
                    at_end(&mut end);
                    sink.end(&end)
                }
            };
            shown.map_err(ShowError::Sink)?;
        }
        Ok(())
    }
}
