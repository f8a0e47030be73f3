//! What things cost as their number grows: groups, pending asks, connections. Drawn as SVG, with no crate for it.

use crate::Bench;
use crate::load::burst;
use crate::rows::{Agents, Pair, posts, start_once};
use crate::system;
use crate::world::{Host, World, fresh, spread};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// A line of a plot.
struct Line {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

impl Line {
    const fn new(name: &'static str, colour: &'static str) -> Self {
        Self { name, colour, points: Vec::new() }
    }
}

/// Measures all and writes `groups.svg`, `pending.svg` and `connections.svg` into this folder.
pub(crate) fn draw(bench: &mut Bench, folder: &Path, conditions: &[String]) {
    std::fs::create_dir_all(folder).unwrap();
    let about = format!("{}; {}", conditions[0], conditions[1]);
    let write = |name: &str, svg: String| std::fs::write(folder.join(name), svg).unwrap();
    write(
        "connections.svg",
        plot("Signed clicks made durable", "connections", "milliseconds", &about, &connections(bench)),
    );
    write("groups.svg", plot("From a request to its post", "groups", "milliseconds", &about, &groups(bench)));
    write("pending.svg", plot("100 to 100,000 asks wait", "pending asks", "see the lines", &about, &pending(bench)));
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn connections(bench: &mut Bench) -> Vec<Line> {
    let template = bench.template();
    let mut lines = vec![
        Line::new("askd, p50", "#1f6feb"),
        Line::new("askd, p99", "#0b3d91"),
        Line::new("reference, p50", "#9aa4af"),
        Line::new("reference, p99", "#57606a"),
    ];
    let count = 2_000;
    for (first, host) in [(0, Host::Askd), (2, Host::Reference)] {
        let mut world = World::new(host, fresh(&bench.base, "plot"), 10, &bench.chat);
        let mut asks = spread(bench.numbers(10 * count), 10);
        template.fill(&world, &asks);
        world.start();
        for connections in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
            let these = asks.split_off(asks.len() - usize::try_from(count).unwrap());
            let burst = burst(world.port, connections, &world.clicks(&these, &template));
            println!("{connections} connections: {:.0}/s, p99 {:.1} ms", burst.rate(), burst.times.p99() * 1e3);
            lines[first].points.push((connections as f64, burst.times.p50() * 1e3));
            lines[first + 1].points.push((connections as f64, burst.times.p99() * 1e3));
            let numbers: Vec<u64> = these.iter().map(|(number, _)| *number).collect();
            bench.chat.wait_for_updates(&numbers, Duration::from_secs(60));
            world.take(&these);
        }
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn groups(bench: &mut Bench) -> Vec<Line> {
    let mut lines = vec![
        Line::new("askd, p50", "#1f6feb"),
        Line::new("askd, p99", "#0b3d91"),
        Line::new("reference, p50", "#9aa4af"),
        Line::new("reference, p99", "#57606a"),
    ];
    for groups in [10, 100, 1_000, 10_000] {
        let mut pair = Pair::new(bench, groups);
        pair.start();
        let [reference, askd] = pair.rounds(bench, |bench, world| posts(bench, world, 200));
        println!("{groups} groups: p50 {:.2} ms, reference {:.2} ms", askd[0] * 1e3, reference[0] * 1e3);
        let values = [askd[0], askd[1], reference[0], reference[1]];
        for (line, value) in lines.iter_mut().zip(values) {
            line.points.push((groups as f64, value * 1e3));
        }
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn pending(bench: &mut Bench) -> Vec<Line> {
    let template = bench.template();
    let mut lines = vec![
        Line::new("first click after a start, ms", "#1f6feb"),
        Line::new("all loaded after a start, ms", "#0b3d91"),
        Line::new("memory, MB", "#bf3989"),
        Line::new("click to response, ms", "#1a7f37"),
    ];
    for pending in [100, 1_000, 10_000, 100_000] {
        let mut world = World::new(Host::Askd, fresh(&bench.base, "plot"), 10, &bench.chat);
        let mut asks = spread(bench.numbers(pending + 101), 10);
        template.fill(&world, &asks);
        let first = asks.split_off(asks.len() - 1);
        let clicks = world.clicks(&first, &template);
        let (took, loaded) = start_once(&mut world, &clicks[0]);
        std::thread::sleep(Duration::from_secs(2));
        let memory = system::memory(world.pid()).0 as f64 / 1e6;
        let agents = Agents::watch(&world);
        let these = asks.split_off(asks.len() - 100);
        let clicks = world.clicks(&these, &template);
        let mut connection = crate::load::Connection::new(world.port);
        let trips = clicks.iter().map(|click| {
            let begun = Instant::now();
            connection.call(&click.request).unwrap();
            (agents.see(click.number) - begun).as_secs_f64()
        });
        let trip = crate::load::Times::new(trips.collect()).p50();
        println!(
            "{pending} pending: start {took:.2} s, loaded {loaded:.2} s, {memory:.1} MB, click {:.2} ms",
            trip * 1e3
        );
        for (line, value) in lines.iter_mut().zip([took * 1e3, loaded * 1e3, memory, trip * 1e3]) {
            line.points.push((pending as f64, value));
        }
    }
    lines
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 70.0;

/// A plot with two logarithmic axes.
fn plot(title: &str, across: &str, up: &str, about: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        all().map(of).fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
    };
    let (from_x, to_x) = range(&|point| point.0);
    let (least, most) = range(&|point| point.1);
    let (from_y, to_y) = (least.log10().floor(), most.log10().ceil());
    let x =
        |value: f64| LEFT + (value.log10() - from_x.log10()) / (to_x.log10() - from_x.log10()) * (WIDTH - LEFT - RIGHT);
    let y =
        |value: f64| HEIGHT - BOTTOM - (value.log10() - from_y) / (to_y - from_y).max(1.0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"{}\" fill=\"#57606a\" font-size=\"10\">{about}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{across}</text>\n\
         <text x=\"16\" y=\"{}\" transform=\"rotate(-90 16 {})\" text-anchor=\"middle\">{up}</text>\n",
        HEIGHT - 8.0,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 30.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0,
    );
    let mut out = |text: String| writeln!(svg, "{text}").unwrap_or_default();
    let mut power = from_y;
    while power <= to_y {
        let (at, value) = (y(10f64.powf(power)), 10f64.powf(power));
        out(format!("<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#d0d7de\"/>", WIDTH - RIGHT));
        out(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", LEFT - 6.0, at + 4.0));
        power += 1.0;
    }
    for (value, _) in lines.first().map(|line| &*line.points).unwrap_or_default() {
        out(format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            x(*value),
            HEIGHT - BOTTOM + 18.0
        ));
    }
    let mut at = LEFT;
    for line in lines {
        let points: Vec<String> =
            line.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let colour = line.colour;
        out(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        ));
        out(format!("<text x=\"{at}\" y=\"42\" fill=\"{colour}\">{}</text>", line.name));
        #[expect(clippy::cast_precision_loss, reason = "a short name")]
        let width = 6.5 * line.name.len() as f64;
        at += width + 20.0;
    }
    svg + "</svg>\n"
}
