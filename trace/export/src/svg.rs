//! A flame graph as SVG: the width of a frame is the weight of all stacks that it is in, callers are below.
//!
//! The picture is whole without its script, which fits it to the window, zooms and searches. In a comparison, frames that have grown are red and frames
//! that have shrunk are blue, by how much of the whole has moved.

use std::io::{self, Write};

use xxhash_rust::xxh3::xxh3_64;

use crate::tree::{Frame, Tree};

/// Width of the picture, and of its margins.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
/// Height of a frame, and of the lines above and below all frames.
const HEIGHT: f64 = 16.0;
const HEAD: f64 = 40.0;
const FOOT: f64 = 12.0;
/// Width of a character.
const CHARACTER: f64 = 7.3;
/// Frames that are narrower are left out, with what they call.
const NARROWEST: f64 = 0.1;

/// Fits the picture to the window, zooms to a frame when it is clicked, and marks the frames whose names match a regular
/// expression.
const SCRIPT: &str = r#"<script><![CDATA[
const svg = document.currentScript.ownerSVGElement, margin = 10, character = 7.3;
const frames = Array.from(svg.querySelectorAll('g.frame'), (g) => {
  const box = g.querySelector('rect'), [x, w] = [g.dataset.x, g.dataset.w].map(Number);
  return { g, box, text: g.querySelector('text'), x, w, name: g.dataset.name, fill: box.getAttribute('fill') };
});
let from = 0, part = 1, wanted = null;
function label(anchor) {
  const text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
  text.setAttribute('y', 24);
  text.setAttribute('text-anchor', anchor);
  return svg.appendChild(text);
}
const search = label('end'), matched = label('end');
search.textContent = 'Search';
search.style.cursor = 'pointer';
function draw() {
  const whole = svg.getBoundingClientRect().width, inner = whole - 2 * margin;
  search.setAttribute('x', whole - margin);
  matched.setAttribute('x', whole - margin - 80);
  const found = [];
  for (const { g, box, text, x, w, name, fill } of frames) {
    const left = Math.max(x, from), right = Math.min(x + w, from + part);
    g.style.display = right - left > 1e-9 ? '' : 'none';
    const width = (right - left) / part * inner, at = margin + (left - from) / part * inner;
    box.setAttribute('x', at);
    box.setAttribute('width', Math.max(width - 0.5, 0));
    const room = Math.floor((width - 6) / character);
    text.setAttribute('x', at + 3);
    text.textContent = room >= name.length ? name : room < 3 ? '' : name.slice(0, room - 2) + '..';
    const matches = wanted !== null && wanted.test(name);
    box.setAttribute('fill', matches ? 'rgb(225,90,255)' : fill);
    if (matches && right > left) found.push([left, right]);
  }
  // A frame above another one that matches counts once.
  let sum = 0, end = from;
  for (const [left, right] of found.sort((a, b) => a[0] - b[0])) {
    sum += Math.max(right - Math.max(left, end), 0);
    end = Math.max(end, right);
  }
  matched.textContent = wanted === null ? '' : 'matched: ' + (100 * sum / part).toFixed(2) + ' %';
}
function find(text) {
  try {
    wanted = text ? new RegExp(text) : null;
  } catch {
    wanted = new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  }
  draw();
}
search.addEventListener('click', () => find(prompt('Names that match this regular expression; empty: none', '')));
for (const { g, x, w } of frames) {
  g.addEventListener('click', () => {
    [from, part] = [x, w];
    draw();
  });
}
svg.removeAttribute('viewBox');
svg.setAttribute('width', '100%');
window.addEventListener('resize', draw);
draw();
]]></script>
"#;

/// Text in XML.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no place for these at all.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A warm colour that depends on the name alone.
fn by_name(name: &str) -> String {
    let hash = xxh3_64(name.as_bytes());
    let pick = |shift: u32, range: u64| (hash >> shift) % range;
    format!("rgb({},{},{})", 205 + pick(0, 50), 80 + pick(16, 130), pick(32, 60))
}

/// White if nothing has moved; `moved` is -1 to 1.
fn by_difference(moved: f64) -> String {
    let faded = (255.0 * (1.0 - moved.abs().min(1.0))) as u8;
    if moved >= 0.0 { format!("rgb(255,{faded},{faded})") } else { format!("rgb({faded},{faded},255)") }
}

/// The name, as far as it has room.
fn shortened(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    if name.chars().count() <= room {
        name.to_owned()
    } else if room < 3 {
        String::new()
    } else {
        format!("{}..", name.chars().take(room - 2).collect::<String>())
    }
}

/// What the pictures of all frames share.
struct Scale {
    whole: [u64; 2],
    /// The largest move of a frame, in parts of the whole.
    most: f64,
    bottom: f64,
    both: bool,
    unit: String,
}

impl Scale {
    /// How much of the whole has moved to a frame.
    fn moved(&self, frame: &Frame<'_>) -> f64 {
        share(frame.total[1], self.whole[1]) - share(frame.total[0], self.whole[0])
    }

    fn title(&self, frame: &Frame<'_>) -> String {
        let percent = 100.0 * share(frame.total[1], self.whole[1]);
        let title = format!("{} ({} {}, {percent:.2} %)", frame.name, frame.total[1], self.unit);
        if self.both { format!("{title}, before {}", frame.total[0]) } else { title }
    }

    fn frame(&self, out: &mut (impl Write + ?Sized), frame: &Frame<'_>) -> io::Result<()> {
        let (from, part) = (share(frame.left, self.whole[1]), share(frame.total[1], self.whole[1]));
        let inner = WIDTH - 2.0 * MARGIN;
        let (x, width) = (MARGIN + from * inner, part * inner);
        let y = self.bottom - f64::from(frame.depth + 1) * HEIGHT;
        let color = match self.both {
            true if self.most > 0.0 => by_difference(self.moved(frame) / self.most),
            true => by_difference(0.0),
            false => by_name(frame.name),
        };
        let (name, title) = (xml(frame.name), xml(&self.title(frame)));
        writeln!(out, "<g class=\"frame\" data-x=\"{from:.9}\" data-w=\"{part:.9}\" data-name=\"{name}\">")?;
        writeln!(out, "<title>{title}</title>")?;
        let (wide, high) = ((width - 0.5).max(0.0), HEIGHT - 1.0);
        writeln!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y:.0}\" width=\"{wide:.2}\" height=\"{high}\" fill=\"{color}\"/>"
        )?;
        let (at, line, text) = (x + 3.0, y + 11.5, xml(&shortened(frame.name, width)));
        writeln!(out, "<text x=\"{at:.2}\" y=\"{line:.1}\">{text}</text>")?;
        writeln!(out, "</g>")
    }
}

/// Writes the picture.
pub(crate) fn write(
    out: &mut (impl Write + ?Sized),
    tree: &Tree,
    image: &str,
    unit: &str,
    both: bool,
) -> io::Result<()> {
    let whole = tree.frames(|_| false).first().map(|root| root.total).unwrap_or_default();
    let narrowest = NARROWEST / (WIDTH - 2.0 * MARGIN);
    let frames = tree.frames(|width| share(width, whole[1]) >= narrowest);
    let deepest = frames.iter().map(|frame| frame.depth).max().unwrap_or(0);
    let bottom = HEAD + f64::from(deepest + 1) * HEIGHT;
    let mut scale = Scale { whole, most: 0.0, bottom, both, unit: unit.to_owned() };
    scale.most = frames.iter().map(|frame| scale.moved(frame).abs()).fold(0.0, f64::max);
    let height = bottom + FOOT;
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">"
    )?;
    writeln!(out, "<style>g.frame {{ cursor: pointer; }} g.frame:hover rect {{ stroke: black; }}</style>")?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fffdf8\"/>")?;
    let title = xml(&format!("{image}: {} {unit}", whole[1]));
    writeln!(out, "<text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{title}</text>")?;
    for frame in &frames {
        scale.frame(out, frame)?;
    }
    out.write_all(SCRIPT.as_bytes())?;
    writeln!(out, "</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_shortened() {
        assert_eq!(xml("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;?");
        assert_eq!(shortened("function", 100.0), "function");
        assert_eq!(shortened("a_long_function", 60.0), "a_lon..");
        assert_eq!(shortened("function", 10.0), "");
    }

    #[test]
    fn narrow_frames_are_left_out_and_the_others_have_their_place() {
        let mut tree = Tree::default();
        tree.add_stack(["wide", "inner"].into_iter(), 30_000);
        tree.add_stack(["wide"].into_iter(), 10_000);
        tree.add_stack(["narrow"].into_iter(), 1);
        let mut out = Vec::new();
        write(&mut out, &tree, "image", "hits", false).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<title>inner (30000 hits, 75.00 %)</title>"), "{text}");
        assert!(!text.contains("narrow"), "{text}");
        assert!(text.contains("image: 40001 hits"));
    }

    #[test]
    fn a_comparison_is_red_where_it_grew() {
        assert_eq!(by_difference(1.0), "rgb(255,0,0)");
        assert_eq!(by_difference(-1.0), "rgb(0,0,255)");
        assert_eq!(by_difference(0.0), "rgb(255,255,255)");
    }
}
