use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions};

use super::container::{Blueprint, ContainerLimits, ContainerRecord, HOME, NODE_PROGRAM, body};
use super::dialer::ExecDialer;
use super::door::Door;
use super::engine;
use super::kind::EngineKind;
use super::removal::{own, remove_own};
use super::{DockerError, certificates, node_program};
use crate::certificates::{AUTHORITY_VARIABLES, Authorities};
use crate::egress::{AllowList, LoopbackPlan};
use crate::session::{Boundary, Sandbox};
use crate::sys::random_bytes;
use crate::text::with_sources;
use crate::workspace::{
    DOCKER, Drive, Ledger, SandboxKind, SandboxRecord, SandboxState, WorkspaceError,
};

/// Where programs are looked for in an image that does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What the engine says before the path of a directory that it does not find.
const UNSEEN: &str = "bind source path does not exist: ";

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
    /// Where records of sandboxes are kept; where the drive is private when absent.
    pub ledger: Option<PathBuf>,
    /// Whether programs reach whatever the engine's ordinary network does.
    pub has_network: bool,
    /// Files with certificates that are trusted besides the image's own.
    pub authorities: Vec<PathBuf>,
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
    /// program for the inside. Makes nothing. What was found is said in one sentence.
    pub async fn check(&self) -> Result<String, DockerError> {
        let client = engine::connect(&self.settings.endpoint).await?;
        let plan = self.plan(&client, None, None).await?;
        Ok(format!(
            "engine {} at {}, image {} ({}), runtime {}",
            plan.engine,
            self.settings.endpoint,
            plan.image,
            plan.image_id,
            self.settings.runtime.as_deref().unwrap_or("of the engine"),
        ))
    }

    fn ledger(&self, drive: &Drive) -> Ledger {
        let own = &self.settings.ledger;
        Ledger::at(own.clone().unwrap_or_else(|| drive.private.clone()))
    }

    /// `pinned` is the id of the image with that name when the run began.
    async fn plan(
        &self,
        client: &Docker,
        known: Option<EngineKind>,
        pinned: Option<&str>,
    ) -> Result<Plan, DockerError> {
        let settings = &self.settings;
        let image = settings.image.clone().ok_or(DockerError::NoImageChosen)?;
        let machine = node_program::check(&settings.node_program)?;
        let kind = async {
            match known {
                Some(known) => Ok(known),
                None => EngineKind::of(client, &settings.endpoint).await,
            }
        };
        let wanted = pinned.unwrap_or(&image);
        let (found, kind) = tokio::join!(client.inspect_image(wanted), kind);
        let found = match found {
            Ok(found) => found,
            Err(error) if engine::is_missing(&error) => {
                return Err(match pinned {
                    Some(id) => DockerError::ImageGone {
                        image,
                        id: id.to_owned(),
                    },
                    None => DockerError::NoImage { image },
                });
            }
            Err(error) => return Err(DockerError::engine("look for the image")(error)),
        };
        let kind = kind?;
        let made_for = (
            found.os.unwrap_or_default(),
            found.architecture.unwrap_or_default(),
        );
        if made_for != ("linux".to_owned(), machine.to_owned()) {
            return Err(DockerError::OtherMachine {
                image,
                found: format!("{}/{}", made_for.0, made_for.1),
                needed: format!("linux/{machine}"),
            });
        }
        let runtime = kind.runtime(settings.runtime.as_deref())?;
        kind.check_limits(&settings.limits)?;
        if settings.has_network {
            kind.check_network(client).await?;
        }
        let own = found.config.and_then(|config| config.env);
        let own = own.unwrap_or_default();
        Ok(Plan {
            engine: kind.version.clone(),
            image,
            image_id: found.id.unwrap_or_default(),
            runtime,
            kind,
            environment: environment(&own),
            image_environment: own,
        })
    }

    async fn make(
        &self,
        drive: &Drive,
        pinned: Option<&str>,
    ) -> Result<(Made, Docker), DockerError> {
        let settings = &self.settings;
        let known = EngineKind::known(&settings.endpoint);
        let client = match &known {
            Some(known) => engine::reconnect(&settings.endpoint, known)?,
            None => engine::connect(&settings.endpoint).await?,
        };
        let plan = self.plan(&client, known, pinned).await?;
        let authorities = Authorities::read(&settings.authorities)?;
        let mut environment = plan.environment.clone();
        if !authorities.is_empty() {
            environment.retain(|(name, _)| !AUTHORITY_VARIABLES.contains(&name.as_str()));
            let inside = certificates::INSIDE.to_owned();
            let names = AUTHORITY_VARIABLES.into_iter();
            environment.extend(names.map(|name| (name.to_owned(), inside.clone())));
        }
        let token = random_bytes::<16>().map_err(DockerError::Record)?;
        let mut container = ContainerRecord {
            name: format!("mini-ork-{}", drive.name),
            endpoint: settings.endpoint.clone(),
            image: plan.image.clone(),
            image_id: plan.image_id.clone(),
            runtime: settings.runtime.clone(),
            made_with: None,
            keeps_limits: plan.kind.keeps_limits,
            bridge_user: plan.kind.bridge_user(),
            node_program: settings.node_program.clone(),
            environment,
        };
        let kind = SandboxKind::Docker(container.clone());
        let mut record = SandboxRecord::new(drive, &token, kind).map_err(DockerError::Record)?;
        let ledger = self.ledger(drive);
        // From here on it is found by whoever comes after.
        ledger.write(&record).map_err(DockerError::Record)?;
        let made = create(
            &client,
            &record,
            &container,
            drive,
            settings,
            &plan,
            &authorities,
        )
        .await;
        let made = made.and_then(|(made_with, door)| match &settings.runtime {
            Some(runtime) if made_with != plan.runtime => Err(DockerError::RuntimeNotTaken {
                runtime: runtime.clone(),
                used: made_with,
            }),
            _ => Ok((made_with, door)),
        });
        let door = match made {
            Ok((made_with, door)) => {
                container.made_with = Some(made_with);
                door
            }
            Err(error) => {
                // Where it cannot be removed now it stays on record, and the next sweep removes it.
                if remove_own(&client, &record, &container).await.is_ok() {
                    let why = format!("it could not be started: {}", with_sources(&error));
                    let _ = ledger.close(&mut record, &why);
                }
                return Err(error);
            }
        };
        record.kind = SandboxKind::Docker(container.clone());
        record.state = SandboxState::Running;
        ledger.write(&record).map_err(DockerError::Record)?;
        let made = Made {
            record,
            container,
            door,
        };
        Ok((made, client))
    }

    /// The container of `record`, when it still runs. What is left of one that does not is removed.
    async fn adopt(
        &self,
        drive: &Drive,
        mut record: SandboxRecord,
        container: ContainerRecord,
    ) -> Result<Option<(Made, Docker)>, DockerError> {
        if !record.is_open() {
            return Ok(None);
        }
        let ledger = self.ledger(drive);
        let client = engine::connect(&container.endpoint).await?;
        let why = match own(&client, &record, &container).await? {
            Some(seen) if seen.running => {
                record.state = SandboxState::Running;
                ledger.write(&record).map_err(DockerError::Record)?;
                let made = Made {
                    record,
                    container,
                    door: None,
                };
                return Ok(Some((made, client)));
            }
            Some(seen) => {
                engine::remove(&client, &seen.id).await?;
                seen.end
            }
            None => "it was gone when its run went on".to_owned(),
        };
        ledger
            .close(&mut record, &why)
            .map_err(DockerError::Record)?;
        Ok(None)
    }
}

/// A container that runs.
struct Made {
    record: SandboxRecord,
    container: ContainerRecord,
    /// Where its server comes by itself.
    door: Option<Door>,
}

#[async_trait]
impl Boundary for DockerBoundary {
    fn backend(&self) -> &'static str {
        DOCKER
    }

    fn isolation(&self) -> String {
        let image = self.settings.image.as_deref().unwrap_or("no image");
        let network = network(self.settings.has_network);
        format!("docker: a container of {image}, {network}")
    }

    async fn raise(&self, drive: &Drive) -> Result<Sandbox, WorkspaceError> {
        let known = self.ledger(drive).read(&drive.name);
        let known = known.map_err(DockerError::Record)?;
        let (mut adopted, mut pinned) = (None, None);
        if let Some(record) = known
            && let SandboxKind::Docker(container) = record.kind.clone()
        {
            pinned = Some(container.image_id.clone());
            adopted = self.adopt(drive, record, container).await?;
        }
        let (made, client) = match adopted {
            Some(adopted) => adopted,
            None => self.make(drive, pinned.as_deref()).await?,
        };
        let container = made.container;
        let isolation = format!(
            "docker: container {} of image {} ({}), runtime {}, {}{}",
            container.name,
            container.image,
            container.image_id,
            container.made_with.as_deref().unwrap_or("unknown"),
            network(self.settings.has_network),
            if container.keeps_limits {
                ""
            } else {
                ", no limits"
            },
        );
        let environment = container.environment.iter();
        Ok(Sandbox {
            dialer: Arc::new(ExecDialer {
                client,
                engine: container.endpoint.clone(),
                container: container.name.clone(),
                user: container.bridge_user.clone(),
                door: Mutex::new(made.door),
            }),
            token: made.record.token,
            program: NODE_PROGRAM.into(),
            environment: environment
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
            keeps_own: false,
            isolation,
        })
    }

    async fn lower(&self, drive: &Drive) -> Result<(), WorkspaceError> {
        self.ledger(drive).lower(&drive.name).await
    }
}

fn network(has_network: bool) -> &'static str {
    if has_network {
        "the engine's own network"
    } else {
        "no network"
    }
}

/// What is settled before a container is made.
struct Plan {
    /// The version of the engine.
    engine: String,
    image: String,
    image_id: String,
    /// The runtime that the engine is to take.
    runtime: String,
    kind: EngineKind,
    environment: Vec<(String, String)>,
    /// The image's own, as it is.
    image_environment: Vec<String>,
}

/// Makes and starts the container; returns the runtime that it was made with, and where its server
/// comes by itself.
async fn create(
    client: &Docker,
    record: &SandboxRecord,
    container: &ContainerRecord,
    drive: &Drive,
    settings: &DockerSettings,
    plan: &Plan,
    authorities: &Authorities,
) -> Result<(String, Option<Door>), DockerError> {
    let certificates = if authorities.is_empty() {
        None
    } else {
        let own = &plan.image_environment;
        Some(certificates::bundle(client, container, drive, own, authorities).await?)
    };
    let threshold = Door::directory(&drive.private).map_err(DockerError::Record)?;
    // Where there can be no socket, the engine starts a way in.
    let door = Door::open(&threshold).ok();
    let body = body(&Blueprint {
        drive,
        image_id: &container.image_id,
        runtime: container.runtime.as_deref(),
        node_program: &container.node_program,
        limits: &settings.limits,
        names: &LoopbackPlan::new(&settings.allowed),
        kind: &plan.kind,
        has_network: settings.has_network,
        certificates: certificates.as_ref(),
        door: &threshold,
    })?;
    create_named(client, container, body).await?;
    client
        .start_container(&container.name, None::<StartContainerOptions>)
        .await
        .map_err(|error| not_made(error, container))?;
    match own(client, record, container).await? {
        Some(seen) if seen.running => {
            let endpoint = &container.endpoint;
            let made_with = plan.kind.made_with(endpoint, &container.name, seen.runtime);
            Ok((made_with.await?, door))
        }
        Some(seen) => Err(DockerError::EndedAtOnce { reason: seen.end }),
        None => Err(DockerError::EndedAtOnce {
            reason: "it is gone".to_owned(),
        }),
    }
}

/// Makes a container under the name of `container`, and does not start it.
pub(super) async fn create_named(
    client: &Docker,
    container: &ContainerRecord,
    body: ContainerCreateBody,
) -> Result<(), DockerError> {
    let options = CreateContainerOptionsBuilder::new()
        .name(&container.name)
        .build();
    client
        .create_container(Some(options), body)
        .await
        .map_err(|error| not_made(error, container))?;
    Ok(())
}

/// What it means that the engine did not make or start a container.
fn not_made(error: Error, container: &ContainerRecord) -> DockerError {
    let Error::DockerResponseServerError {
        status_code,
        message,
    } = &error
    else {
        return DockerError::engine("start the container")(error);
    };
    // The only thing that it could be in conflict with.
    if *status_code == 409 {
        return DockerError::Foreign {
            name: container.name.clone(),
        };
    }
    // The engine names the directory that it does not find.
    match message.split_once(UNSEEN) {
        Some((_, path)) => DockerError::NotSeen {
            path: path.trim().into(),
        },
        None => DockerError::engine("start the container")(error),
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
