//! `run --dti-on-crash`: all channels in a folder.

use std::fs;
use std::path::Path;

use trapline_dti::{Channel, Contents, json};
use trapline_session::{Session, counted};

use super::{list, printer};
use crate::failure::Failure;
use crate::talk::Talk;

/// Makes the folder, before the run.
///
/// # Errors
/// It cannot be made, or has files.
pub fn reserve(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Write { path: folder.to_owned(), error };
    fs::create_dir_all(folder).map_err(failed)?;
    match fs::read_dir(folder).map_err(failed)?.next() {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!("--dti-on-crash: {} is not empty", folder.display()))),
    }
}

/// Removes the folder, which is empty: nothing is saved.
pub fn give_up(folder: &Path, talk: &Talk) {
    talk.note(&format!("the guest did not crash, so no channels were saved in {}", folder.display()));
    let _ = fs::remove_dir(folder);
}

/// Writes the channels: `channels.json`, `records.json`, and for each channel a folder with what its files in the guest have.
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, session: &Session, talk: &Talk) -> Result<(), Failure> {
    let found = session.channels();
    let read: Vec<(&Channel, Contents)> =
        found.channels.iter().map(|channel| (channel, channel.read(session.core().ram()))).collect();
    let store = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).map_err(|error| Failure::Write { path: path.to_owned(), error })
    };
    let lines: String = list::objects(&found, &read).iter().map(|object| format!("{object}\n")).collect();
    store(&folder.join("channels.json"), lines.as_bytes())?;
    let mut records: Vec<_> = read
        .iter()
        .flat_map(|(channel, contents)| contents.records().map(move |record| (*channel, record)))
        .collect();
    records.sort_by_key(|(_, record)| record.time);
    let lines: String =
        records.iter().map(|(channel, record)| format!("{}\n", json(channel.name(), record))).collect();
    store(&folder.join("records.json"), lines.as_bytes())?;
    for (channel, contents) in &read {
        let own = folder.join(folder_name(folder, channel.name()));
        fs::create_dir_all(&own).map_err(|error| Failure::Write { path: own.clone(), error })?;
        store(&own.join("level"), format!("{}\n", channel.level()).as_bytes())?;
        for cpu in 0..channel.cpus() {
            let mut bytes = Vec::new();
            let of_cpu = contents.records().filter(|record| record.cpu == cpu);
            of_cpu.for_each(|record| record.raw(&mut bytes));
            store(&own.join(format!("data{cpu}")), &bytes)?;
        }
    }
    let (channels, records) =
        (counted(read.len() as u64, "channel"), counted(records.len() as u64, "record"));
    talk.note(&format!("{channels} with {records} saved in {}", folder.display()));
    printer::warn(&found, talk);
    Ok(())
}

/// A name for the channel's folder that is not there yet.
fn folder_name(folder: &Path, channel: &str) -> String {
    let plain = channel.replace('/', "_");
    let plain = if plain.starts_with('.') { format!("_{plain}") } else { plain };
    let numbered = (2..).map(|number| format!("{plain}.{number}"));
    let mut names = std::iter::once(plain.clone()).chain(numbered);
    names.find(|name| !folder.join(name).exists()).unwrap_or(plain)
}
