resource "sallyport_socket" "shop" {
  name = "shop"
}

resource "sallyport_tunnel" "web" {
  socket_id = sallyport_socket.shop.id
  name      = "web-1"
}

# In the run that makes the tunnel, this is its credential. In every other run it is null.
ephemeral "sallyport_initial_secret" "web" {
  id = sallyport_tunnel.web.id
}

# Where it goes must take ephemeral values: a write-only argument, or the environment of a provisioner.
resource "terraform_data" "machine" {
  triggers_replace = sallyport_tunnel.web.id

  provisioner "local-exec" {
    command     = "./make-machine"
    environment = { TUNNEL_CREDENTIAL = ephemeral.sallyport_initial_secret.web.secret }
  }
}
