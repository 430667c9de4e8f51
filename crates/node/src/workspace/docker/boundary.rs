use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bollard::Docker;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions};
use mini_ork_protocol::SecretBytes;

use super::channel::ExecChannel;
use super::container::{ADDRESS, Blueprint, ContainerLimits, HOME, NODE_PROGRAM, body};
use super::engine::{self, Seen};
use super::record::{SandboxRecord, SandboxState};
use super::{DockerError, node_program};
use crate::egress::{AllowList, LoopbackPlan};
use crate::session::{BRIDGE_ARGUMENT, Boundary, Channel, DialError, Dialer, Sandbox};
use crate::sys::process::now_ms;
use crate::sys::random_bytes;
use crate::workspace::{Drive, WorkspaceError};

/// Where programs are looked for in an image that does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the backend `docker` has to know.
#[derive(Debug, Clone, Default)]
pub struct DockerSettings {
    /// Address of the engine.
    pub endpoint: String,
    /// The image.
    pub image: Option<String>,
    /// The runtime; the engine's own when absent.
    pub runtime: Option<String>,
    /// The program for the inside, which must need no libraries.
    pub node_program: PathBuf,
    /// What a container may take of the machine.
    pub limits: ContainerLimits,
    /// The hosts that programs reach through the shim inside.
    pub allowed: AllowList,
}

/// Makes and removes the container of a run.
#[derive(Debug)]
pub struct DockerBoundary {
    settings: DockerSettings,
}

impl DockerBoundary {
    /// A boundary of these settings.
    pub fn new(settings: DockerSettings) -> Self {
        Self { settings }
    }

    /// Checks what can be checked before there is a run: the engine, the image, the runtime, and the
    /// program for the inside. Makes nothing.
    pub async fn check(&self) -> Result<(), DockerError> {
        let client = engine::connect(&self.settings.endpoint).await?;
        self.plan(&client).await.map(|_| ())
    }

    async fn plan(&self, client: &Docker) -> Result<Plan, DockerError> {
        let settings = &self.settings;
        let image = settings.image.clone().ok_or(DockerError::NoImageChosen)?;
        let machine = node_program::check(&settings.node_program)?;
        let found = match client.inspect_image(&image).await {
            Ok(found) => found,
            Err(error) if engine::is_missing(&error) => {
                return Err(DockerError::NoImage { image });
            }
            Err(error) => return Err(DockerError::engine("look for the image")(error)),
        };
        let info = client
            .info()
            .await
            .map_err(DockerError::engine("describe itself"))?;
        let kind = (
            found.os.unwrap_or_default(),
            found.architecture.unwrap_or_default(),
        );
        if kind != ("linux".to_owned(), machine.to_owned()) {
            return Err(DockerError::OtherMachine {
                image,
                found: format!("{}/{}", kind.0, kind.1),
                needed: format!("linux/{machine}"),
            });
        }
        if let Some(runtime) = &settings.runtime {
            let mut known: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
            known.sort();
            if !known.contains(runtime) {
                let runtime = runtime.clone();
                return Err(DockerError::NoRuntime { runtime, known });
            }
        }
        let rootless = info
            .security_options
            .is_some_and(|options| options.iter().any(|option| option.contains("rootless")));
        let own = found.config.and_then(|config| config.env);
        Ok(Plan {
            image,
            image_id: found.id.unwrap_or_default(),
            // Where the engine belongs to this user, its root is this user.
            user: if rootless {
                "0:0".to_owned()
            } else {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                format!("{}:{}", user.as_raw(), group.as_raw())
            },
            environment: environment(&own.unwrap_or_default()),
        })
    }

    async fn make(&self, drive: &Drive) -> Result<(SandboxRecord, Docker), DockerError> {
        let settings = &self.settings;
        let client = engine::connect(&settings.endpoint).await?;
        let plan = self.plan(&client).await?;
        let token = random_bytes::<16>().map_err(DockerError::Record)?;
        let mut record = SandboxRecord {
            format: SandboxRecord::FORMAT,
            name: format!("mini-ork-{}", drive.name),
            endpoint: settings.endpoint.clone(),
            image: plan.image,
            image_id: plan.image_id,
            runtime: settings.runtime.clone(),
            node_program: settings.node_program.clone(),
            token: SecretBytes::from(token.as_slice()),
            environment: plan.environment,
            state: SandboxState::Intended,
            made_at_ms: now_ms(),
            released_at_ms: None,
        };
        // From here on it is found by whoever comes after.
        record.write(&drive.private).map_err(DockerError::Record)?;
        let made = create(&client, &record, drive, settings, plan.user).await;
        if let Err(error) = made {
            engine::remove(&client, &record.name).await?;
            record.release(&drive.private)?;
            return Err(error);
        }
        record.state = SandboxState::Running;
        record.write(&drive.private).map_err(DockerError::Record)?;
        Ok((record, client))
    }

    /// The container on record, when it still runs. What is left of one that does not is removed.
    async fn adopt(&self, drive: &Drive) -> Result<Option<(SandboxRecord, Docker)>, DockerError> {
        let Some(mut record) = SandboxRecord::read(&drive.private).map_err(DockerError::Record)?
        else {
            return Ok(None);
        };
        if record.state == SandboxState::Released {
            return Ok(None);
        }
        let client = engine::connect(&record.endpoint).await?;
        match own(&client, &record.name, &drive.name).await? {
            Some(seen) if seen.running => Ok(Some((record, client))),
            found => {
                if found.is_some() {
                    engine::remove(&client, &record.name).await?;
                }
                record.release(&drive.private)?;
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl Boundary for DockerBoundary {
    fn backend(&self) -> &'static str {
        "docker"
    }

    fn isolation(&self) -> String {
        let image = self.settings.image.as_deref().unwrap_or("no image");
        format!("docker: a container of {image} without a network")
    }

    async fn raise(&self, drive: &Drive) -> Result<Sandbox, WorkspaceError> {
        let (record, client) = match self.adopt(drive).await? {
            Some(adopted) => adopted,
            None => self.make(drive).await?,
        };
        let isolation = format!(
            "docker: container {} of image {} ({}), runtime {}, no network",
            record.name,
            record.image,
            record.image_id,
            record.runtime.as_deref().unwrap_or("of the engine"),
        );
        let environment = record.environment.iter();
        Ok(Sandbox {
            dialer: Arc::new(ExecDialer {
                client,
                container: record.name.clone(),
            }),
            token: record.token.clone(),
            program: NODE_PROGRAM.into(),
            environment: environment
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
            keeps_own: false,
            isolation,
        })
    }

    async fn lower(&self, drive: &Drive) -> Result<(), WorkspaceError> {
        release(&drive.name, &drive.private).await?;
        Ok(())
    }
}

/// Removes the container of the run `run` that is on record in `private`; says whether there was
/// one. Makes nothing, and may be called again at any time.
pub async fn release(run: &str, private: &Path) -> Result<bool, DockerError> {
    let Some(mut record) = SandboxRecord::read(private).map_err(DockerError::Record)? else {
        return Ok(false);
    };
    if record.state == SandboxState::Released {
        return Ok(false);
    }
    let client = engine::connect(&record.endpoint).await?;
    let found = own(&client, &record.name, run).await?.is_some();
    if found {
        engine::remove(&client, &record.name).await?;
    }
    record.release(private)?;
    Ok(found)
}

/// Removes the containers on the engine at `endpoint` that were made for runs of `home` whose
/// directories are gone; returns their names.
pub async fn release_strays(endpoint: &str, home: &Path) -> Result<Vec<String>, DockerError> {
    let client = engine::connect(endpoint).await?;
    let mut removed = Vec::new();
    for (name, private) in engine::labelled(&client).await? {
        if private.starts_with(home) && !private.is_dir() {
            engine::remove(&client, &name).await?;
            removed.push(name);
        }
    }
    Ok(removed)
}

impl SandboxRecord {
    fn release(&mut self, private: &Path) -> Result<(), DockerError> {
        self.state = SandboxState::Released;
        self.released_at_ms = Some(now_ms());
        self.write(private).map_err(DockerError::Record)
    }
}

/// What is settled before a container is made.
struct Plan {
    image: String,
    image_id: String,
    user: String,
    environment: Vec<(String, String)>,
}

async fn create(
    client: &Docker,
    record: &SandboxRecord,
    drive: &Drive,
    settings: &DockerSettings,
    user: String,
) -> Result<(), DockerError> {
    let body = body(&Blueprint {
        drive,
        image_id: &record.image_id,
        runtime: record.runtime.as_deref(),
        node_program: &record.node_program,
        limits: &settings.limits,
        names: LoopbackPlan::new(&settings.allowed).host_entries(),
        user,
    })?;
    let options = CreateContainerOptionsBuilder::new()
        .name(&record.name)
        .build();
    client
        .create_container(Some(options), body)
        .await
        .map_err(DockerError::engine("make the container"))?;
    client
        .start_container(&record.name, None::<StartContainerOptions>)
        .await
        .map_err(DockerError::engine("start the container"))?;
    match own(client, &record.name, &drive.name).await? {
        Some(seen) if seen.running => Ok(()),
        Some(seen) => Err(DockerError::EndedAtOnce { reason: seen.end }),
        None => Err(DockerError::EndedAtOnce {
            reason: "it is gone".to_owned(),
        }),
    }
}

/// The container `name`, when it is this run's. Another one of that name is an error.
async fn own(client: &Docker, name: &str, run: &str) -> Result<Option<Seen>, DockerError> {
    let found = engine::look(client, name)
        .await
        .map_err(DockerError::engine("look for the container"))?;
    match found {
        Some(seen) if seen.run.as_deref() != Some(run) => Err(DockerError::Foreign {
            name: name.to_owned(),
        }),
        found => Ok(found),
    }
}

/// The environment of the image, with a home in the run's drive.
fn environment(image: &[String]) -> Vec<(String, String)> {
    let mut environment: Vec<(String, String)> = image
        .iter()
        .filter_map(|entry| {
            let (name, value) = entry.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .filter(|(name, _)| name != "HOME")
        .collect();
    if !environment.iter().any(|(name, _)| name == "PATH") {
        environment.push(("PATH".to_owned(), DEFAULT_PATH.to_owned()));
    }
    environment.push(("HOME".to_owned(), HOME.to_owned()));
    environment
}

/// Reaches the server of a container through processes that the engine starts beside it.
#[derive(Debug)]
struct ExecDialer {
    client: Docker,
    container: String,
}

#[async_trait]
impl Dialer for ExecDialer {
    async fn dial(&self) -> Result<Box<dyn Channel>, DialError> {
        match self.bridge().await {
            Ok(channel) => Ok(channel),
            Err(error) => match engine::look(&self.client, &self.container).await {
                Ok(Some(seen)) if !seen.running => Err(DialError::Gone { reason: seen.end }),
                Ok(None) => Err(DialError::Gone {
                    reason: "its container was removed".to_owned(),
                }),
                _ => Err(DialError::Failed(std::io::Error::other(error))),
            },
        }
    }
}

impl ExecDialer {
    async fn bridge(&self) -> Result<Box<dyn Channel>, bollard::errors::Error> {
        let command = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            cmd: Some(vec![NODE_PROGRAM, BRIDGE_ARGUMENT, ADDRESS]),
            ..CreateExecOptions::default()
        };
        let bridge = self.client.create_exec(&self.container, command).await?;
        let options = StartExecOptions {
            output_capacity: Some(64 << 10),
            ..StartExecOptions::default()
        };
        match self.client.start_exec(&bridge.id, Some(options)).await? {
            StartExecResults::Attached { output, input } => {
                Ok(Box::new(ExecChannel::new(output, input)))
            }
            StartExecResults::Detached => Err(bollard::errors::Error::IOError {
                err: std::io::Error::other("the engine did not attach the bridge"),
            }),
        }
    }
}
