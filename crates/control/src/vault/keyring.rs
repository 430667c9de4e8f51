//! The key of a vault in the keyring of the user's session: the Secret Service of D-Bus.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zbus::Connection;
use zbus::connection::Builder;
use zbus::message::Body;
use zbus::zvariant::{DynamicType, ObjectPath, OwnedObjectPath, OwnedValue, Value};
use zeroize::Zeroizing;

use super::key::Key;

const SERVICE: &str = "org.freedesktop.secrets";
const ROOT: &str = "/org/freedesktop/secrets";
/// The path that stands for none.
const NONE: &str = "/";
/// A keyring answers in milliseconds; one that is started for it, in a second. Shorter than the
/// patience of who waits for the lock of the vault.
const LIMIT: Duration = Duration::from_secs(5);
/// There is one, or two while a keyring is copied.
const MOST_ITEMS: usize = 8;

/// The keyring of the user's session. Nothing is connected before it is needed.
#[derive(Debug, Clone)]
pub struct Keyring {
    /// The bus of the session as D-Bus writes addresses.
    address: Option<String>,
    limit: Duration,
}

/// Why a keyring did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringFailure {
    /// There is no session bus, so there is no keyring.
    #[error("there is no D-Bus session, so there is no keyring")]
    NoSession,
    /// There is a session bus, and nobody on it keeps secrets.
    #[error("no keyring service is on the D-Bus session")]
    NoService,
    /// The service has no collection for new secrets.
    #[error("the keyring service has no default keyring")]
    NoDefault,
    /// The keyring is locked, and mini-ork does not ask for its password.
    #[error("the keyring is locked")]
    Locked,
    /// It did not answer.
    #[error("the keyring did not answer within {} s", limit.as_secs_f32())]
    TimedOut {
        /// How long it had.
        limit: Duration,
    },
    /// It holds nothing for this vault.
    #[error("the keyring has no key of this vault")]
    NoKey,
    /// What it holds for this vault is not the key that was to be put there.
    #[error("the keyring has another key for this vault")]
    OtherKey,
    /// Items are found by the path of the home, which D-Bus wants as Unicode.
    #[error("the path of the home is not Unicode")]
    Path,
    /// Anything else that went wrong.
    #[error("the keyring cannot be used: {0}")]
    Failed(String),
}

impl Keyring {
    /// The keyring of a session that has these values of `DBUS_SESSION_BUS_ADDRESS` and
    /// `XDG_RUNTIME_DIR`.
    pub fn of_session(address: Option<&OsStr>, runtime_directory: Option<&OsStr>) -> Self {
        let given = address
            .and_then(OsStr::to_str)
            .filter(|text| !text.trim().is_empty());
        let address = match given {
            // A list; only a socket is taken, since other kinds start programs or ask the network.
            Some(list) => list
                .split(';')
                .find(|one| one.starts_with("unix:"))
                .map(str::to_owned),
            None => runtime_directory
                .filter(|directory| !directory.is_empty())
                .map(|directory| {
                    format!(
                        "unix:path={}",
                        escaped(&PathBuf::from(directory).join("bus"))
                    )
                }),
        };
        Self {
            address,
            limit: LIMIT,
        }
    }

    /// The keyring of a session that has none.
    pub fn none() -> Self {
        Self::of_session(None, None)
    }

    /// What can be done about a failure, as one sentence.
    pub(super) fn remedy(failure: &KeyringFailure) -> &'static str {
        match failure {
            KeyringFailure::NoSession | KeyringFailure::NoService => {
                "log in to a desktop session, where a keyring such as GNOME Keyring or KWallet runs"
            }
            KeyringFailure::NoDefault => "make a default keyring, for example with Seahorse",
            KeyringFailure::Locked => {
                "unlock the keyring, for example by logging in to the desktop session anew or with Seahorse"
            }
            KeyringFailure::TimedOut { .. } | KeyringFailure::Failed(_) => {
                "see that the keyring of this session works"
            }
            KeyringFailure::NoKey => "unlock the keyring that the key was put into",
            KeyringFailure::OtherKey => {
                "if the vault that it belonged to is gone, remove the item `Key of a mini-ork vault` from the keyring"
            }
            KeyringFailure::Path => "give mini-ork a home with a Unicode path",
        }
    }

    /// The key of the vault in `home`.
    pub(super) fn read(&self, home: &Path) -> Result<Key, KeyringFailure> {
        let attributes = Attributes::of(home)?;
        self.ask(async |session| {
            let mut keys = session.keys(&attributes).await?;
            match keys.len() {
                0 => Err(KeyringFailure::NoKey),
                _ => Ok(keys.swap_remove(0).1),
            }
        })
    }

    /// Puts the key of the vault in `home` there. One that is there already is left alone, and must
    /// be the same.
    pub(super) fn store(&self, home: &Path, key: &Key) -> Result<(), KeyringFailure> {
        let attributes = Attributes::of(home)?;
        self.ask(async |session| {
            let there = session.keys(&attributes).await?;
            match there.first() {
                Some((_, other)) if other.is(key) => Ok(()),
                Some(_) => Err(KeyringFailure::OtherKey),
                None => session.create(&attributes, key).await,
            }
        })
    }

    /// Removes `key`, and no other, if it is there.
    pub(super) fn remove(&self, home: &Path, key: &Key) -> Result<(), KeyringFailure> {
        let attributes = Attributes::of(home)?;
        self.ask(async |session| {
            for (item, other) in session.keys(&attributes).await? {
                if other.is(key) {
                    session.delete(&item).await?;
                }
            }
            Ok(())
        })
    }

    /// Does `work` in a thread of its own, which the caller waits for: it may be called where another
    /// runtime is at work.
    fn ask<T: Send>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<T, KeyringFailure> + Send,
    ) -> Result<T, KeyringFailure> {
        let address = self.address.as_deref().ok_or(KeyringFailure::NoSession)?;
        let limit = self.limit;
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(failed)?;
            let answer = runtime.block_on(async {
                let asked = async {
                    let session = Session::open(address).await?;
                    work(&session).await
                };
                tokio::time::timeout(limit, asked)
                    .await
                    .unwrap_or(Err(KeyringFailure::TimedOut { limit }))
            });
            runtime.shutdown_background();
            answer
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .spawn_scoped(scope, ask)
                .map_err(failed)?;
            let panicked = |_| KeyringFailure::Failed("its answer is not understood".to_owned());
            thread.join().map_err(panicked)?
        })
    }
}

/// What an item is found by.
struct Attributes(HashMap<&'static str, String>);

impl Attributes {
    fn of(home: &Path) -> Result<Self, KeyringFailure> {
        let home = fs_err::canonicalize(home).map_err(failed)?;
        let home = home.to_str().ok_or(KeyringFailure::Path)?;
        Ok(Self(HashMap::from([
            ("application", "mini-ork".to_owned()),
            ("home", home.to_owned()),
        ])))
    }
}

/// A connection to the service. Secrets go over it as they are: the bus is a socket of this user,
/// and whoever can listen there can ask the keyring as well.
struct Session {
    connection: Connection,
    path: OwnedObjectPath,
}

/// A secret as the service has it: the session, parameters, the value, and its kind.
type Wire = (OwnedObjectPath, Vec<u8>, Vec<u8>, String);

impl Session {
    async fn open(address: &str) -> Result<Self, KeyringFailure> {
        let connection = Builder::address(address)
            .map_err(|_| KeyringFailure::NoSession)?
            .build()
            .await
            .map_err(|error| match error {
                zbus::Error::InputOutput(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    KeyringFailure::NoSession
                }
                error => told(&error),
            })?;
        let reply = call(
            &connection,
            ROOT,
            "Service",
            "OpenSession",
            &("plain", Value::from("")),
        )
        .await?;
        let (_, path): (OwnedValue, OwnedObjectPath) =
            reply.deserialize().map_err(|error| told(&error))?;
        Ok(Self { connection, path })
    }

    /// The keys that are there for a vault, with their items.
    async fn keys(
        &self,
        attributes: &Attributes,
    ) -> Result<Vec<(OwnedObjectPath, Key)>, KeyringFailure> {
        let reply = call(
            &self.connection,
            ROOT,
            "Service",
            "SearchItems",
            &(&attributes.0,),
        )
        .await?;
        let (open, locked): (Vec<OwnedObjectPath>, Vec<OwnedObjectPath>) =
            reply.deserialize().map_err(|error| told(&error))?;
        if open.is_empty() && !locked.is_empty() {
            return Err(KeyringFailure::Locked);
        }
        let mut keys = Vec::new();
        for item in open.into_iter().take(MOST_ITEMS) {
            let reply = call(
                &self.connection,
                item.as_str(),
                "Item",
                "GetSecret",
                &(&self.path,),
            )
            .await?;
            let (_, _, value, _): Wire = reply.deserialize().map_err(|error| told(&error))?;
            let key = Key::parse(&Zeroizing::new(value)).ok_or(KeyringFailure::OtherKey)?;
            keys.push((item, key));
        }
        Ok(keys)
    }

    async fn create(&self, attributes: &Attributes, key: &Key) -> Result<(), KeyringFailure> {
        let reply = call(
            &self.connection,
            ROOT,
            "Service",
            "ReadAlias",
            &("default",),
        )
        .await?;
        let collection: OwnedObjectPath = reply.deserialize().map_err(|error| told(&error))?;
        if collection.as_str() == NONE {
            return Err(KeyringFailure::NoDefault);
        }
        if self.is_locked(&collection).await? {
            return Err(KeyringFailure::Locked);
        }
        let text = key.text();
        let properties = HashMap::from([
            (
                "org.freedesktop.Secret.Item.Label",
                Value::from("Key of a mini-ork vault"),
            ),
            (
                "org.freedesktop.Secret.Item.Attributes",
                Value::from(attributes.0.clone()),
            ),
        ]);
        let secret = (&self.path, b"".as_slice(), text.as_bytes(), "text/plain");
        let replace = false;
        let arguments = (properties, secret, replace);
        let reply = call(
            &self.connection,
            collection.as_str(),
            "Collection",
            "CreateItem",
            &arguments,
        )
        .await?;
        let (_, prompt): (OwnedObjectPath, OwnedObjectPath) =
            reply.deserialize().map_err(|error| told(&error))?;
        unprompted(&prompt)
    }

    async fn delete(&self, item: &ObjectPath<'_>) -> Result<(), KeyringFailure> {
        let reply = call(&self.connection, item.as_str(), "Item", "Delete", &()).await?;
        let prompt: OwnedObjectPath = reply.deserialize().map_err(|error| told(&error))?;
        unprompted(&prompt)
    }

    async fn is_locked(&self, collection: &ObjectPath<'_>) -> Result<bool, KeyringFailure> {
        let arguments = ("org.freedesktop.Secret.Collection", "Locked");
        let interface = Some("org.freedesktop.DBus.Properties");
        let reply = self
            .connection
            .call_method(
                Some(SERVICE),
                collection.as_str(),
                interface,
                "Get",
                &arguments,
            )
            .await
            .map_err(|error| told(&error))?;
        let value: OwnedValue = reply.body().deserialize().map_err(|error| told(&error))?;
        bool::try_from(value).map_err(failed)
    }
}

fn call<'a, B>(
    connection: &'a Connection,
    path: &'a str,
    interface: &str,
    method: &'a str,
    arguments: &'a B,
) -> impl Future<Output = Result<Body, KeyringFailure>> + 'a
where
    B: serde::Serialize + DynamicType,
{
    let interface = format!("org.freedesktop.Secret.{interface}");
    async move {
        connection
            .call_method(
                Some(SERVICE),
                path,
                Some(interface.as_str()),
                method,
                arguments,
            )
            .await
            .map(|reply| reply.body())
            .map_err(|error| told(&error))
    }
}

/// Nothing was done when somebody is to be asked first, which is about a lock.
fn unprompted(prompt: &ObjectPath<'_>) -> Result<(), KeyringFailure> {
    if prompt.as_str() == NONE {
        Ok(())
    } else {
        Err(KeyringFailure::Locked)
    }
}

/// Of an error that the other side reports only the name is kept: its text may repeat what it got.
fn told(error: &zbus::Error) -> KeyringFailure {
    match error {
        zbus::Error::MethodError(name, _, _) => match name.as_str() {
            "org.freedesktop.Secret.Error.IsLocked" => KeyringFailure::Locked,
            "org.freedesktop.DBus.Error.ServiceUnknown"
            | "org.freedesktop.DBus.Error.NameHasNoOwner"
            | "org.freedesktop.DBus.Error.Spawn.ServiceNotFound" => KeyringFailure::NoService,
            name => KeyringFailure::Failed(name.to_owned()),
        },
        zbus::Error::InputOutput(error) => failed(error),
        _ => KeyringFailure::Failed("its answer is not understood".to_owned()),
    }
}

fn failed(error: impl std::fmt::Display) -> KeyringFailure {
    KeyringFailure::Failed(error.to_string())
}

/// A path as addresses have it.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'/' | b'.' => {
                text.push(char::from(*byte));
            }
            byte => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}
