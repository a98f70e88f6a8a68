//! The pane of the channels that drivers trace to: the channels, then their records.

use ratatui::text::Line;
use trapline_session::counted;

use super::lists::broken;
use crate::app::App;
use crate::scene::Scene;

/// The number of records, for the title.
pub fn note(scene: &Scene) -> String {
    scene
        .channels
        .as_ref()
        .map(|channels| format!(" {}", counted(channels.records as u64, "record")))
        .unwrap_or_default()
}

/// The table, what cannot be read, and the records, the latest last.
pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let Some(channels) = &scene.channels else {
        return vec![Line::styled("memory is being searched", app.look.faint())];
    };
    if channels.table.is_empty() && channels.unread.is_empty() {
        return vec![Line::from(
            "there are no channels here: no driver of the guest traces, or none has begun",
        )];
    }
    let (head, rest) = channels.table.split_at(channels.table.len().min(1));
    let mut lines: Vec<Line<'static>> =
        head.iter().map(|line| Line::styled(line.clone(), app.look.name())).collect();
    lines.extend(rest.iter().map(|line| Line::from(line.clone())));
    let unread = channels.unread.iter().flat_map(|line| broken(line, width));
    lines.extend(unread.map(|line| line.style(app.look.bad())));
    lines.push(Line::default());
    if channels.older > 0 {
        let older = counted(channels.older as u64, "earlier record");
        lines.push(Line::styled(format!("{older} not shown"), app.look.faint()));
    }
    lines.extend(channels.lines.iter().flat_map(|line| broken(line, width)));
    lines
}
