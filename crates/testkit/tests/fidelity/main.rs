//! The scripted model server is what the clients of the vendors expect: their SDKs and the agent
//! CLIs work with it as it is.

mod agents;
mod sdks;
