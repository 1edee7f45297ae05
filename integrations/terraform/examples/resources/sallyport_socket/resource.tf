resource "sallyport_socket" "shop" {
  name   = "shop"
  labels = { env = "prod" }

  health_check = {
    type = "http"
    path = "/healthz"
  }
}

# A socket with a password, which is neither in the plan nor in the state.
variable "password" {
  type      = string
  ephemeral = true
}

resource "sallyport_socket" "admin" {
  name = "admin"

  protected = {
    username            = "ann"
    password_wo         = var.password
    password_wo_version = 1 # another number sends the password again
  }
}

# A socket with a port of its own.
resource "sallyport_socket" "database" {
  name   = "database"
  type   = "tls"
  alpn   = ["postgresql"]
  access = { allow = ["192.0.2.0/24"] }
}

output "shop" {
  value = sallyport_socket.shop.url
}
