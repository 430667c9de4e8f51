//! The lane gateway beside nginx: what each adds until the first byte of an answer, and how much
//! memory it takes, while many agents listen to streams at once.
//!
//! Client, vendor and what is between them are processes of their own. Both proxies talk TLS to the
//! same vendor, check its certificate, put a key into the request, and buffer nothing.

mod load;
mod parties;
mod roles;

use std::path::Path;

use load::{Load, Measured};
use parties::{Party, Route};

use super::lab::{Lab, failed, progress};
use super::report::Report;
use super::sample::Samples;
use crate::cli::BenchGatewayArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::GlobalSettings;

pub(crate) use roles::{PARTY_ARGUMENT, party_main};

const STEADY: &str = "steady";
const BURST: &str = "burst";
const SLOW: &str = "slow";
const MEMORY: &str = "memory";
/// Milliseconds; less is told by chance.
const RESOLUTION: f64 = 0.02;
const MIB: f64 = 1024.0 * 1024.0;
/// Of the clients, one in so many does not read.
const ONE_IS_SLOW: usize = 10;

/// What was measured of one way to the vendor.
#[derive(Default)]
struct Column {
    /// First byte of a call on a connection that was used before.
    kept: Samples,
    /// First byte of a call on a new connection.
    new: Samples,
    /// The same when all begin in the same moment.
    burst: Samples,
    /// While all listen; each process with its part of what it shares.
    shared: Samples,
    /// The most of each process, with all of what it shares.
    resident: Samples,
}

impl Column {
    fn take_memory(&mut self, party: &Party, measured: &Measured) -> Result<(), CommandError> {
        self.shared.push(measured.shared / MIB);
        self.resident.push(party.most_resident()? / MIB);
        Ok(())
    }
}

/// Measures, and prints what was measured.
pub(super) fn gateway(args: &BenchGatewayArgs, global: &GlobalSettings) -> CommandResult {
    let place = match &args.dir {
        Some(directory) => global.current_directory.join(directory),
        None => global
            .environment
            .path("TMPDIR")
            .unwrap_or_else(|| Path::new("/tmp").to_owned()),
    };
    let lab = Lab::make(&place, global)?;
    let mut report = Report::new(&lab);
    measure(&lab, args, &mut report)?;
    if args.json {
        render::json(&report)?;
    } else {
        render::out(&report.describe())?;
    }
    Ok(ExitStatus::Success)
}

fn measure(lab: &Lab, args: &BenchGatewayArgs, report: &mut Report) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let vendor = Party::vendor(lab)?;
    let clients = usize::try_from(args.clients.max(2)).unwrap_or(usize::MAX);
    let steady = Load {
        clients,
        calls: usize::try_from(args.calls.max(2)).unwrap_or(usize::MAX),
        is_burst: false,
        slow: 0,
    };
    let burst = Load {
        calls: 1,
        is_burst: true,
        ..steady
    };
    let mut columns: [Column; 3] = Default::default();
    for turn in 0..args.samples.max(1) as usize {
        for place in 0..Route::ALL.len() {
            // Who goes first changes.
            let index = (turn + place) % Route::ALL.len();
            let (route, column) = (Route::ALL[index], &mut columns[index]);
            progress(&format!("turn {}: {}", turn + 1, route.name()));
            let party = Party::between(lab, &vendor, route)?;
            let measured = runtime.block_on(load::run(&party, steady))?;
            column.kept.extend(&measured.kept);
            column.new.extend(&measured.new);
            column.take_memory(&party, &measured)?;
            drop(party);
            // A new one, without connections to the vendor.
            let party = Party::between(lab, &vendor, route)?;
            let measured = runtime.block_on(load::run(&party, burst))?;
            column.burst.extend(&measured.new);
            column.take_memory(&party, &measured)?;
        }
    }
    tell(report, &columns);
    let slow = Load {
        slow: clients / ONE_IS_SLOW,
        ..steady
    };
    progress("some readers that do not read");
    let party = Party::between(lab, &vendor, Route::Gateway)?;
    let measured = runtime.block_on(load::run(&party, slow))?;
    tell_slow(report, &columns[2], &measured, party.most_resident()? / MIB);
    Ok(())
}

fn tell(report: &mut Report, columns: &[Column; 3]) {
    for (route, column) in Route::ALL.iter().zip(columns) {
        let name = route.name();
        for (part, what, samples) in [
            (STEADY, "kept connection", &column.kept),
            (STEADY, "new connection", &column.new),
            (BURST, "all at once", &column.burst),
        ] {
            report.row(part, format!("{name}: first byte, {what}"), "ms", samples);
            let late = [samples.at(0.99)].into_iter().collect();
            report.row(part, format!("{name}: 99 of 100, {what}"), "ms", &late);
        }
        if *route != Route::Direct {
            report.row(
                MEMORY,
                format!("{name}: while all listen (PSS)"),
                "MiB",
                &column.shared,
            );
            report.row(
                MEMORY,
                format!("{name}: the most (RSS)"),
                "MiB",
                &column.resident,
            );
        }
    }
    let [direct, nginx, own] = columns;
    let mut compare = |name, share, pick: fn(&Column) -> &Samples| {
        let added = |column| pick(column).at(share) - pick(direct).at(share);
        // On a machine that is busy, nginx can seem to take nothing or less.
        let least = added(nginx).max(RESOLUTION);
        report.goal(name, 3.0, added(own) / least, "times");
    };
    compare("added, kept connection, against nginx", 0.5, |column| {
        &column.kept
    });
    compare("added, kept connection, 99 of 100", 0.99, |column| {
        &column.kept
    });
    compare("added, new connection, against nginx", 0.5, |column| {
        &column.new
    });
    compare("added, all at once, against nginx", 0.5, |column| {
        &column.burst
    });
    // Against what it is compared with, the gateway is not spared what it shares.
    let memory = own.resident.summary().max / nginx.shared.summary().max;
    report.goal("memory against nginx", 2.0, memory, "times");
}

fn tell_slow(report: &mut Report, without: &Column, measured: &Measured, resident: f64) {
    let kept: Samples = measured.kept.iter().copied().collect();
    report.row(
        SLOW,
        "first byte of the others, kept connection",
        "ms",
        &kept,
    );
    let resident: Samples = [resident].into_iter().collect();
    report.row(SLOW, "most memory (RSS)", "MiB", &resident);
    report.goal(
        "first byte beside slow readers, against without",
        1.5,
        kept.median() / without.kept.median(),
        "times",
    );
}
