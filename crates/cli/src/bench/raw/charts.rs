//! Charts as SVG: round trips over the payload's size, by link and raw against UDP; throughput over the size.

use super::order::Carrier;
use super::tables::{LINKS, trip_rows};
use crate::bench::record::{Record, Status};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// A chart with the name of its file and what it shows.
pub struct Chart {
    /// Without ending.
    pub file: String,
    /// Above it.
    pub title: String,
    /// The document.
    pub svg: String,
}

const SIZE: (u32, u32) = (960, 460);
/// What of it is for the names of the lines.
const LEGEND: u32 = 190;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Told apart by people who do not see all colours, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(110, 110, 110),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
];

/// A line.
struct Series {
    name: String,
    colour: RGBColor,
    /// Thin, with open points.
    light: bool,
    points: Vec<(f64, f64)>,
}

fn colour(carrier: Carrier) -> RGBColor {
    COLOURS[Carrier::ALL.iter().position(|c| *c == carrier).unwrap_or(0)]
}

/// An axis with round numbers at it. Not the crate's own: those need the mathematics library, which every `bypath run`
/// would have to load.
#[derive(Clone)]
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
    marks: Vec<f64>,
}

impl Axis {
    /// From 0 to a little above `highest`.
    fn linear(highest: f64, room: f64) -> Axis {
        let to = highest * room;
        let step = steps().find(|s| to / s <= 8.0).unwrap_or(to);
        let marks = (0..=8).map(|n| f64::from(n) * step).take_while(|m| *m <= to).collect();
        Axis { from: 0.0, to, logarithmic: false, marks }
    }

    /// From a little below the lowest to a little above the highest of `range`, both above 0.
    fn logarithmic(range: &Range<f64>) -> Axis {
        let (from, to) = (range.start * 0.8, range.end * 1.25);
        let marks = steps().skip_while(|s| *s < from).take_while(|s| *s <= to).collect();
        Axis { from, to, logarithmic: true, marks }
    }

    /// With these numbers at it.
    fn at(self, marks: Vec<f64>) -> Axis {
        Axis { marks, ..self }
    }
}

/// 0.001, 0.002, 0.005, 0.01 and so on.
fn steps() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(0.001), |decade| Some(decade * 10.0))
        .take(20)
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * decade))
}

/// The logarithm to base 2 of a positive number, as exactly as a chart is drawn.
fn log2(value: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff;
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & EXPONENT) as i64 - 1023;
    let mantissa = f64::from_bits(bits & !(EXPONENT << 52) | 1023 << 52);
    // ln m = 2 artanh((m - 1) / (m + 1)), a series that converges quickly for m in 1 to 2.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = t * (1.0 + square * (1.0 / 3.0 + square * (0.2 + square / 7.0)));
    exponent as f64 + series * 2.0 / std::f64::consts::LN_2
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = match self.logarithmic {
            true => (log2(*value) - log2(self.from)) / (log2(self.to) - log2(self.from)),
            false => (value - self.from) / (self.to - self.from),
        };
        limit.0 + (f64::from(limit.1 - limit.0) * share) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        // 0.5 and 20, but not 0.5000000001.
        let digits = if *value >= 1.0 || *value == 0.0 { 0 } else { 3 };
        let text = format!("{value:.digits$}");
        if digits > 0 { text.trim_end_matches('0').to_owned() } else { text }
    }
}

/// All charts that the records have points for.
pub fn all(records: &[Record]) -> Result<Vec<Chart>, String> {
    let mut charts = Vec::new();
    for (mode, how) in [("spin", "both ends spin"), ("block", "both ends sleep")] {
        for (udp, who, file) in [(true, "UDP", "udp"), (false, "RAW", "raw")] {
            let of = LINKS.iter().flat_map(|link| trips(records, link, mode, |c| c.is_udp() == udp, true));
            let title = format!("{who} by link: round trip, {how}");
            charts.push(trip_chart(format!("{file}-by-link-{mode}"), title, of.collect())?);
        }
        for link in LINKS {
            let of = trips(records, link, mode, |_| true, false);
            let title = format!("RAW against UDP on {link}: round trip, {how}");
            charts.push(trip_chart(format!("raw-against-udp-{link}-{mode}"), title, of)?);
        }
    }
    for link in LINKS {
        let title = format!("Received on {link}: throughput, every octet checked{}", lossy(records, link));
        charts.push(throughput_chart(format!("throughput-{link}"), title, received(records, link))?);
    }
    Ok(charts.into_iter().flatten().collect())
}

/// Medians in us over the size.
fn trips(
    records: &[Record],
    link: &str,
    mode: &str,
    wanted: impl Fn(Carrier) -> bool,
    by_link: bool,
) -> Vec<Series> {
    let (carriers, rows) = trip_rows(records, link, mode);
    let series = |(at, carrier): (usize, &Carrier)| {
        let of = rows.iter().filter_map(|(size, row)| Some((*size as f64, row[at]?.p50? / 1e3)));
        let name = match by_link {
            true => format!("{} on {link}", carrier.name()),
            false => carrier.name().to_owned(),
        };
        Series { name, colour: colour(*carrier), light: by_link && link == "lo", points: of.collect() }
    };
    carriers.iter().enumerate().filter(|(_, c)| wanted(**c)).map(series).collect()
}

/// Which subjects lost too much at some size.
fn lossy(records: &[Record], link: &str) -> String {
    let of = records.iter().filter(|r| r.status == Status::Lossy && r.figure.link.as_deref() == Some(link));
    let mut names: Vec<&str> = of.map(|r| r.figure.subject).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("; lossy: {}", names.join(", ")) }
}

/// MiB/s over the size.
fn received(records: &[Record], link: &str) -> Vec<Series> {
    let series = |carrier: Carrier| {
        let of = records.iter().filter(|r| {
            let f = &r.figure;
            f.case == "throughput"
                && f.metric == "received_bytes_per_s"
                && f.subject == carrier.name()
                && f.link.as_deref() == Some(link)
        });
        let mut points: Vec<(f64, f64)> = of
            .filter_map(|r| Some((r.figure.size? as f64, r.median? / (1024.0 * 1024.0))))
            .filter(|(_, v)| *v > 0.0)
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: carrier.name().into(), colour: colour(carrier), light: false, points }
    };
    Carrier::ALL.into_iter().map(series).collect()
}

/// Smallest and largest of both coordinates; `None` without two points in a line.
fn bounds(series: &[Series]) -> Option<(Range<f64>, Range<f64>)> {
    series.iter().find(|s| s.points.len() > 1)?;
    let points = || series.iter().flat_map(|s| &s.points);
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        low..points().map(of).fold(0.0, f64::max)
    };
    Some((range(&|p| p.0), range(&|p| p.1)))
}

fn trip_chart(file: String, title: String, series: Vec<Series>) -> Result<Option<Chart>, String> {
    let Some((x, y)) = bounds(&series) else { return Ok(None) };
    let axes = (Axis::linear(x.end, 1.02), Axis::linear(y.end, 1.1));
    draw(file, title, "us, median", axes, &series).map(Some)
}

fn throughput_chart(file: String, title: String, series: Vec<Series>) -> Result<Option<Chart>, String> {
    let Some((x, y)) = bounds(&series) else { return Ok(None) };
    let mut sizes: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|p| p.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let axes = (Axis::logarithmic(&x).at(sizes), Axis::logarithmic(&y));
    draw(file, title, "MiB/s received, logarithmic", axes, &series).map(Some)
}

fn draw(
    file: String,
    title: String,
    unit: &str,
    axes: (Axis, Axis),
    series: &[Series],
) -> Result<Chart, String> {
    let mut svg = String::new();
    draw_on(&mut svg, &title, unit, axes, series).map_err(|e| format!("cannot draw {file}: {e}"))?;
    Ok(Chart { file, title, svg })
}

fn draw_on<'s>(
    svg: &'s mut String,
    title: &str,
    unit: &str,
    axes: (Axis, Axis),
    series: &[Series],
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'s> as DrawingBackend>::ErrorType>> {
    let text = |size: u32| (FONT, size).into_font().color(&INK);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, text(20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(axes.0, axes.1)?;
    chart
        .configure_mesh()
        .x_desc("octets of payload")
        .y_desc(unit)
        .label_style(text(14))
        .axis_desc_style(text(15))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .draw()?;
    for (row, line) in series.iter().filter(|s| !s.points.is_empty()).enumerate() {
        let style = line.colour.stroke_width(if line.light { 1 } else { 2 });
        let point = if line.light { line.colour.stroke_width(1) } else { line.colour.filled() };
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        chart.draw_series(line.points.iter().map(|p| Circle::new(*p, 3, point)))?;
        let y = 70 + 24 * row as i32;
        legend.draw(&PathElement::new([(4, y), (30, y)], style))?;
        legend.draw(&Circle::new((17, y), 3, point))?;
        let name = text(14).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw(&Text::new(line.name.clone(), (38, y), name))?;
    }
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_exact_enough_to_draw() {
        for value in [0.001, 0.7, 1.0, 1.999, 2.0, 50.0, 1400.0, 8000.0, 12_345.6] {
            assert!((log2(value) - f64::log2(value)).abs() < 1e-3, "{value}");
        }
    }

    #[test]
    fn axes_have_a_few_round_numbers() {
        assert_eq!(Axis::linear(57.0, 1.1).marks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(Axis::linear(1500.0, 1.02).marks.len(), 8);
        let axis = Axis::logarithmic(&(12.0..900.0));
        let marks: Vec<String> = axis.marks.iter().map(|m| axis.format_ext(m)).collect();
        assert_eq!(marks, ["10", "20", "50", "100", "200", "500", "1000"]);
        assert_eq!(axis.format_ext(&0.5), "0.5");
        assert_eq!((axis.map(&axis.from, (0, 100)), axis.map(&axis.to, (0, 100))), (0, 100));
    }
}
