//! Sandboxes beside what they are made with: containers beside the docker program, and confined
//! programs of this machine beside `unshare`.

mod docker;
mod memory;
mod place;
mod server;
mod work;

use std::path::Path;
use std::time::Instant;

use mini_ork_node::egress::{AllowList, NetworkPolicy};
use mini_ork_node::workspace::BackendSettings;
use tokio::runtime::Runtime;

use self::docker::Docker;
use self::place::Place;
use self::server::Server;
use super::lab::{Lab, failed, milliseconds, progress, time};
use super::report::Report;
use super::sample::Samples;
use crate::cli::BenchSandboxArgs;
use crate::commands::sandbox::check_settings;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Network, Profile, Surroundings};

const UP: &str = "up";
const EXEC: &str = "exec";
/// An exec takes milliseconds, so many are measured for one that is asked for.
const EXECS: u32 = 5;

/// Measures, and prints what was measured.
pub(super) fn sandbox(args: &BenchSandboxArgs, global: &GlobalSettings) -> CommandResult {
    let place = match &args.dir {
        Some(directory) => global.current_directory.join(directory),
        None => global
            .environment
            .path("TMPDIR")
            .unwrap_or_else(|| Path::new("/tmp").to_owned()),
    };
    let server = Server::start().map_err(|error| failed(&error))?;
    let entry = format!("127.0.0.1:{}", server.port());
    let allowed = AllowList::parse([entry.as_str()]).map_err(|mistakes| {
        let mistakes = mistakes.iter().map(ToString::to_string);
        CommandError::failure("cannot measure").details(mistakes)
    })?;
    let policy = NetworkPolicy::Allowlist(allowed);
    let surroundings = |backend| {
        let mut surroundings = Surroundings::resolve(global, backend, &Profile::default())?;
        surroundings.network = Network::of(policy.clone());
        Ok::<_, CommandError>(surroundings)
    };
    let mut settings = global.backend_settings("docker", &surroundings("docker")?)?;
    if let Some(image) = &args.image {
        settings.docker.image = Some(image.clone());
    }
    check_settings("docker", settings.clone(), global)?;
    let mut confined = global.backend_settings("local", &surroundings("local")?)?;
    // What is measured is on record where it is measured.
    settings.docker.ledger = None;
    confined.confined.ledger = None;
    // Neither docker nor `unshare` takes certificates of its user along.
    settings.authorities.clear();
    confined.authorities.clear();
    let lab = Lab::make(&place, global)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let bench = Bench {
        lab: &lab,
        global,
        runtime: &runtime,
        server: &server,
        samples: args.samples.max(1),
        files: args.files,
    };
    let mut report = Report::new(&lab);
    bench.containers(&settings, &mut report)?;
    bench.confined(&confined, &mut report)?;
    if args.json {
        render::json(&report)?;
    } else {
        render::out(&report.describe())?;
    }
    Ok(ExitStatus::Success)
}

/// What every part needs.
struct Bench<'a> {
    lab: &'a Lab,
    global: &'a GlobalSettings,
    runtime: &'a Runtime,
    server: &'a Server,
    samples: u32,
    files: u32,
}

impl Bench<'_> {
    fn containers(
        &self,
        settings: &BackendSettings,
        report: &mut Report,
    ) -> Result<(), CommandError> {
        let docker = Docker::new(self.lab, &settings.docker);
        self.raise(&docker, settings, report)?;
        let place = Place::new(self.lab, "docker", settings, "work")?;
        let plain = docker.run("plain")?;
        let measured = self.runtime.block_on(async {
            place.up().await?;
            self.exec(&docker, &place, report).await?;
            work::measure(self, "docker", &place, report).await
        });
        // What was measured is of no use when a container stays.
        self.runtime.block_on(place.down())?;
        measured?;
        drop(plain);
        memory::measure(self, &docker, settings, report)
    }

    /// Sandboxes that are made, by turns with containers that docker makes.
    fn raise(
        &self,
        docker: &Docker<'_>,
        settings: &BackendSettings,
        report: &mut Report,
    ) -> Result<(), CommandError> {
        progress("up: a sandbox beside `docker run`");
        let (mut own, mut plain) = (Samples::default(), Samples::default());
        for turn in 0..=self.samples {
            let own_ms = || self.raised(settings, "docker", &format!("up{turn}"));
            let plain_ms = || {
                let began = Instant::now();
                let container = docker.run(&format!("up{turn}"))?;
                let took = milliseconds(began);
                drop(container);
                Ok::<_, CommandError>(took)
            };
            // Who goes first changes.
            let (own_ms, plain_ms) = if turn % 2 == 0 {
                let own_ms = own_ms()?;
                (own_ms, plain_ms()?)
            } else {
                let plain_ms = plain_ms()?;
                (own_ms()?, plain_ms)
            };
            // The first turn brings the programs into memory.
            if turn > 0 {
                own.push(own_ms);
                plain.push(plain_ms);
            }
        }
        report.row(UP, "docker: session up", "ms", &own);
        report.row(UP, "docker run --detach, same image", "ms", &plain);
        let ratios = own.ratios(&plain);
        report.row(UP, "session up against it, turn by turn", "times", &ratios);
        let ratio = own.median() / plain.median();
        report.goal("session up against docker run", 1.0, ratio, "times");
        Ok(())
    }

    /// How long it takes until a new sandbox has answered and everything of it is checked.
    fn raised(
        &self,
        settings: &BackendSettings,
        backend: &str,
        name: &str,
    ) -> Result<f64, CommandError> {
        let place = Place::new(self.lab, backend, settings, name)?;
        let began = Instant::now();
        let up = self.runtime.block_on(place.up());
        let took = milliseconds(began);
        self.runtime.block_on(place.down())?;
        up?;
        Ok(took)
    }

    async fn exec(
        &self,
        docker: &Docker<'_>,
        place: &Place<'_>,
        report: &mut Report,
    ) -> Result<(), CommandError> {
        progress("exec: `true` in a session beside `docker exec`");
        let (mut own, mut plain) = (Samples::default(), Samples::default());
        for turn in 0..=self.samples.saturating_mul(EXECS) {
            let own_ms = place.run(&["true"]).await?;
            let plain_ms = docker.exec("plain", &["true"])?;
            if turn > 0 {
                own.push(own_ms);
                plain.push(plain_ms);
            }
        }
        report.row(EXEC, "docker: `true` in a session", "ms", &own);
        report.row(EXEC, "docker exec, `true`", "ms", &plain);
        let ratios = own.ratios(&plain);
        report.row(EXEC, "session against it, turn by turn", "times", &ratios);
        let ratio = own.median() / plain.median();
        report.goal("exec against docker exec", 0.1, ratio, "times");
        Ok(())
    }

    fn confined(
        &self,
        settings: &BackendSettings,
        report: &mut Report,
    ) -> Result<(), CommandError> {
        if let Err(refused) = check_settings("local", settings.clone(), self.global) {
            progress(&format!("confined programs are left out: {refused}"));
            return Ok(());
        }
        progress("up: confined programs beside `unshare`");
        let (mut own, mut unshare, mut bubble) = Default::default();
        for turn in 0..=self.samples {
            let own_ms = self.raised(settings, "local", &format!("local{turn}"))?;
            let mut command = self.lab.command("unshare");
            command.args(["--user", "--map-root-user", "--mount", "--net", "--pid"]);
            command.args(["--fork", "true"]);
            let unshare_ms = time(command, "unshare")?;
            let mut command = self.lab.command("bwrap");
            command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
            let bubble_ms = time(command, "bwrap");
            if turn > 0 {
                Samples::push(&mut own, own_ms);
                Samples::push(&mut unshare, unshare_ms);
                // It is on few machines.
                if let Ok(bubble_ms) = bubble_ms {
                    Samples::push(&mut bubble, bubble_ms);
                }
            }
        }
        report.row(UP, "local, confined: session up", "ms", &own);
        report.row(
            UP,
            "unshare with the same namespaces, `true`",
            "ms",
            &unshare,
        );
        if bubble.summary().count > 0 {
            report.row(UP, "bwrap --unshare-all, `true`", "ms", &bubble);
        }
        let place = Place::new(self.lab, "local", settings, "confined")?;
        let measured = self.runtime.block_on(async {
            place.up().await?;
            let mut own = Samples::default();
            for turn in 0..=self.samples.saturating_mul(EXECS) {
                let own_ms = place.run(&["true"]).await?;
                if turn > 0 {
                    own.push(own_ms);
                }
            }
            report.row(EXEC, "local, confined: `true` in a session", "ms", &own);
            work::measure(self, "local, confined", &place, report).await
        });
        self.runtime.block_on(place.down())?;
        measured
    }
}
