mod basics;
mod flow;
mod lease;
mod script;
mod stop;
mod trouble;
