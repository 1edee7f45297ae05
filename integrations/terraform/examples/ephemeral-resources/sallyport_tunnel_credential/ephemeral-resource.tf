variable "rotate" {
  description = "Whether this run gives the machine another credential."
  type        = bool
  default     = false
}

# A tunnel that another configuration made.
data "sallyport_socket" "shop" {
  name = "shop"
}

ephemeral "sallyport_tunnel_credential" "web" {
  socket_id = data.sallyport_socket.shop.id
  tunnel_id = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
  rotate    = var.rotate
}
