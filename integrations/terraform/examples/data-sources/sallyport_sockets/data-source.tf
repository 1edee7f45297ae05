data "sallyport_sockets" "production" {
  labels = { env = "prod" }
}

output "addresses" {
  value = { for socket in data.sallyport_sockets.production.sockets : socket.name => socket.url }
}
